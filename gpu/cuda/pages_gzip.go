package cuda

import (
	"cmp"
	"slices"
)

// gzipArgs is the layout of pages_gzip.cu.
type gzipArgs struct{ pages, status, list, checksums uint64 }

const gzipThreads = 64

// putGzip adds the list of GZIP pages to a table, the largest first, and the tables of their checksums.
func (b *pageBatch) putGzip(t *pageTable, pages []batchPage) {
	if len(b.gzip) == 0 {
		return
	}
	slices.SortStableFunc(b.gzip, func(x, y int32) int { return cmp.Compare(pages[y].size, pages[x].size) })
	t.gzip, t.checksums = put(t, b.gzip), put(t, checksumTables())
}

// decompressGzip starts the kernel that decompresses GZIP pages. at is the address of the table of pages.
func (w *decoding) decompressGzip(pages pagesArgs, at uint64) {
	launchPages(w, "pages_gzip", len(w.batch.gzip), gzipThreads, gzipArgs{pages: pages.pages, status: pages.status,
		list: at + w.table.gzip, checksums: at + w.table.checksums})
}
