package text

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/stretchr/testify/require"

	"github.com/gstream/gstream/source"
	"github.com/gstream/gstream/source/store/storetest"
)

// TestObjectsOfTextHaveTheRowsOfFiles reads through a proxy with faults: files that are longer than what is read ahead,
// compressed and empty ones, of a store and of a web server.
func TestObjectsOfTextHaveTheRowsOfFiles(t *testing.T) {
	storetest.Quick(t)
	dir := t.TempDir()
	var long strings.Builder
	long.WriteString("n,s\n")
	for i := range 5000 {
		fmt.Fprintf(&long, "%d,%s\n", i, strings.Repeat(fmt.Sprint(i), 1000))
	}
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long.csv"), []byte(long.String()), 0o666))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "short.csv"), []byte("n,s\n1,a\n2,b\n"), 0o666))
	packed, err := os.Create(filepath.Join(dir, "short.csv.gz"))
	require.NoError(t, err)
	z := gzip.NewWriter(packed)
	_, err = z.Write([]byte("n,s\n1,a\n2,b\n"))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	require.NoError(t, packed.Close())
	endpoint := storetest.Folder(t, dir)
	proxy := storetest.Proxy(t, endpoint, storetest.Random(1, 0.3, storetest.Cut, storetest.Refuse, storetest.Drop,
		storetest.Lie))
	storetest.Use(t, proxy)
	for _, name := range []string{"long.csv", "short.csv", "short.csv.gz"} {
		local, err := Open([]string{filepath.Join(dir, name)}, Options{})
		require.NoError(t, err)
		want, err := rowsOf(t, local, 1<<20)
		require.NoError(t, err)
		for _, address := range []string{"s3://" + storetest.Bucket + "/" + name,
			proxy + "/web/" + name + "?X-Amz-Signature=5ec7e7"} {
			table, err := Open([]string{address}, Options{})
			require.NoError(t, err)
			got, err := rowsOf(t, table, 1<<20)
			require.NoError(t, err)
			require.Equal(t, want, got, name)
		}
	}
	_, err = Open([]string{proxy + "/web/none.csv?X-Amz-Signature=5ec7e7"}, Options{})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NotContains(t, err.Error(), "5ec7e7")
	table, err := Open([]string{"s3://" + storetest.Bucket + "/long.csv"}, Options{})
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "long.csv"), []byte(long.String()+"1,a\n"), 0o666))
	_, err = rowsOf(t, table, 1<<20)
	require.ErrorIs(t, err, source.ErrChanged)
	require.ErrorContains(t, err, "long.csv")
}
