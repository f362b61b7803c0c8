package parquet

import (
	"testing"

	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
	"github.com/stretchr/testify/require"
)

// footerOf encodes the footer of a file with some row groups of a column.
func footerOf(t *testing.T, groups int) []byte {
	m := format.FileMetaData{Version: 1, Schema: []format.SchemaElement{{Name: "schema"}}, NumRows: int64(groups),
		RowGroups: []format.RowGroup{}}
	for g := range groups {
		column := format.ColumnChunk{MetaData: format.ColumnMetaData{Codec: format.Snappy, NumValues: 1,
			DataPageOffset: int64(g)}}
		m.RowGroups = append(m.RowGroups, format.RowGroup{NumRows: int64(g), Columns: []format.ColumnChunk{column}})
	}
	b, err := thrift.Marshal(new(thrift.CompactProtocol), &m)
	require.NoError(t, err)
	return b
}

func TestRowGroupsOfAFooterAreDecodedTogether(t *testing.T) {
	for _, n := range []int{0, 1, 14, 15, 16, 17, 100} { // lists of 15 and more have another header
		m, err := decodeFooter(append(footerOf(t, n), "what follows"...))
		require.NoError(t, err)
		require.Len(t, m.RowGroups, n)
		require.EqualValues(t, n, m.NumRows)
		require.Len(t, m.Schema, 1)
		for g, x := range m.RowGroups {
			require.EqualValues(t, g, x.NumRows)
			require.EqualValues(t, g, x.Columns[0].Data.DataPageOffset)
		}
	}
}

func TestAFooterWithoutAListOfRowGroupsIsRefused(t *testing.T) {
	const i32 = 0x15 // a field of a type, whose number is one more than the last one's
	for what, b := range map[string][]byte{
		"no list":                {i32, 2, 0},
		"a list of bytes":        {i32, 2, 0x39, 0x23, 1, 1, 0}, // field 4: two bytes
		"a list of texts":        {i32, 2, 0x39, 0x28, 1, 'a', 1, 'b', 0},
		"a list of other fields": {i32, 2, 0x39, 0x1c, i32, 2, 0, 0},
		"an end":                 {i32, 2, 0x39, 0x2c, 0},
		"a number":               {i32, 2, 0x35, 2, 0},
		"a claim":                {i32, 2, 0x39, 0xfc, 0xff, 0xff, 0xff, 0xff, 0x07, 0, 0},
		"nothing":                {},
	} {
		_, err := decodeFooter(b)
		require.Error(t, err, what)
	}
	b := footerOf(t, 40)
	for n := range b {
		_, err := decodeFooter(b[:n])
		require.Error(t, err, "%d of %d bytes", n, len(b))
	}
}
