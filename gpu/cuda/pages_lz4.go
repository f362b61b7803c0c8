package cuda

// lz4Args is a layout of pages_lz4.cu.
type lz4Args struct {
	pages, status, list uint64
	hadoop, _           int32
}

// decompressLZ4 starts the kernel that decompresses pages, whose positions are in a list with an address.
func (w *decoding) decompressLZ4(pages pagesArgs, list []int32, at uint64, hadoop bool) {
	launchPages(w, "pages_lz4", len(list), copyThreads, lz4Args{pages: pages.pages, status: pages.status, list: at,
		hadoop: flag(hadoop)})
}
