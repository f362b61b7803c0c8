package cuda

// lz4Args is a layout of pages_lz4.cu.
type lz4Args struct {
	pages, status, list uint64
	hadoop, _           int32
}

// decompressLZ4 starts the kernel that decompresses pages, whose positions are in a list.
func (w *decoding) decompressLZ4(pages pagesArgs, list []int32, hadoop bool) {
	if len(list) == 0 {
		return
	}
	var t pageTable
	at := put(&t, list)
	at += t.write(w)
	launchPages(w, "pages_lz4", len(list), copyThreads, lz4Args{pages: pages.pages, status: pages.status, list: at,
		hadoop: flag(hadoop)})
}
