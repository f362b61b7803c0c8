package pipeline_test

import (
	"context"
	"fmt"
	"iter"
	"log"
	"strings"

	"github.com/apache/arrow/go/v17/arrow"
	"github.com/apache/arrow/go/v17/arrow/array"
	"github.com/apache/arrow/go/v17/arrow/memory"

	"github.com/gstream/gstream/pipeline"
)

// The customers of the example with the most open orders.
func ExampleNew() {
	var best pipeline.Collector
	_, err := pipeline.New("best").
		Read("orders", "../examples/quickstart/data/orders.parquet").
		Filter("o_orderstatus = 'O'").
		Group([]string{"o_custkey"}, "count(*) as orders", "sum(o_totalprice) as price").
		Sort("orders desc", "o_custkey").
		Limit(3).
		WriteTo(&best).
		Run(context.Background(), pipeline.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range best.Records() {
		for i := range int(r.NumRows()) {
			fmt.Println(r.Column(0).ValueStr(i), r.Column(1).ValueStr(i))
		}
	}
	// Output:
	// 4 21
	// 1213 19
	// 1078 18
}

// A query in SQL, with a parameter.
func ExampleSQL() {
	var best pipeline.Collector
	_, err := pipeline.SQL(`
		CREATE VIEW orders AS FROM '../examples/quickstart/data/orders.parquet' WHERE o_orderstatus = $status;
		SELECT o_custkey, count(*) AS orders FROM orders GROUP BY ALL ORDER BY orders DESC, o_custkey LIMIT 3`,
		pipeline.Params{"status": "O"}).
		WriteTo(&best).
		Run(context.Background(), pipeline.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range best.Records() {
		for i := range int(r.NumRows()) {
			fmt.Println(r.Column(0).ValueStr(i), r.Column(1).ValueStr(i))
		}
	}
	// Output:
	// 4 21
	// 1213 19
	// 1078 18
}

// Records that are produced while they are read, and rows that are used while the run continues.
func ExampleStreamRecords() {
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	numbers, err := pipeline.StreamRecords(schema, func(context.Context) iter.Seq2[arrow.Record, error] {
		return func(yield func(arrow.Record, error) bool) {
			b := array.NewInt64Builder(memory.DefaultAllocator)
			for n := int64(1); n <= 3; n++ {
				b.AppendValues([]int64{n, 10 * n}, nil)
				if !yield(array.NewRecord(schema, []arrow.Array{b.NewArray()}, 2), nil) {
					return
				}
			}
		}
	}, pipeline.StreamOptions{Rows: 6})
	if err != nil {
		log.Fatal(err)
	}
	rows := pipeline.New("large").ReadTable("numbers", numbers).Filter("n >= 10").Sort("n desc")
	for r, err := range rows.Records(context.Background(), pipeline.RunOptions{}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Column(0))
	}
	// Output:
	// [30 20 10]
}

// Arrow records in, Arrow records out.
func ExampleArrowTable() {
	schema := arrow.NewSchema([]arrow.Field{{Name: "word", Type: arrow.BinaryTypes.String}}, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema,
		strings.NewReader(`[{"word": "to"}, {"word": "be"}, {"word": "to"}]`))
	if err != nil {
		log.Fatal(err)
	}
	words, err := pipeline.ArrowTable(schema, rec)
	if err != nil {
		log.Fatal(err)
	}
	var counts pipeline.Collector
	_, err = pipeline.New("count").
		ReadTable("words", words).
		Group([]string{"word"}, "count(*) as n").
		Sort("n desc").
		WriteTo(&counts).
		Run(context.Background(), pipeline.RunOptions{})
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range counts.Records() {
		for i := range int(r.NumRows()) {
			fmt.Println(r.Column(0).ValueStr(i), r.Column(1).ValueStr(i))
		}
	}
	// Output:
	// to 2
	// be 1
}
