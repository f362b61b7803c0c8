package sqldriver_test

import (
	"database/sql"
	"fmt"
	"log"

	_ "github.com/gstream/gstream/pipeline/sqldriver"
)

func Example() {
	db, err := sql.Open("gstream", "dir=../../examples/quickstart/data&memory_limit=1GiB")
	if err != nil {
		log.Fatal(err)
	}
	defer db.Close()
	rows, err := db.Query("SELECT n_name, n_nationkey FROM 'nation.parquet' WHERE n_regionkey = $region LIMIT 2",
		sql.Named("region", 3))
	if err != nil {
		log.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		var key int
		if err := rows.Scan(&name, &key); err != nil {
			log.Fatal(err)
		}
		fmt.Println(name, key)
	}
	if err := rows.Err(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// FRANCE 6
	// GERMANY 7
}
