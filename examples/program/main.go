// Program finds the customers with the most revenue.
package main

import (
	"context"
	"fmt"
	"log"

	"github.com/gstream/gstream/pipeline"
)

func main() {
	const data = "examples/quickstart/data/"
	var best pipeline.Collector // Arrow records; Write("best.parquet", pipeline.ParquetOptions{}) writes a file
	report, err := pipeline.New("revenue").
		Read("lineitem", data+"lineitem.parquet"). // sources: a name and paths
		Read("orders", data+"orders*.parquet").
		Filter("l_shipdate >= date '1995-01-01'"). // reads the first source
		Join("orders", "l_orderkey = o_orderkey"). // reads the step before
		Group([]string{"o_custkey"},
			"sum(l_extendedprice * (1 - l_discount)) as revenue").
		Sort("revenue desc").
		Limit(3).
		WriteTo(&best).
		Run(context.Background(), pipeline.RunOptions{}) // the context cancels; the output is whole or absent
	if err != nil {
		log.Fatal(err)
	}
	for _, record := range best.Records() {
		fmt.Println(record)
	}
	fmt.Println(report)
}
