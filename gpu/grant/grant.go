// Package grant has the table of memory grants: who may take how much of a budget. Nobody else computes a part of a
// budget. A run reserves by these shares, and gstream check estimates by them. Phases lists which of them may be in use
// at a time, and so what they come to together.
package grant

import "slices"

// Share is a part of a budget: a row of the table.
type Share struct {
	Name string
	// Num of Den parts of the budget. A share without parts is Most bytes.
	Num, Den int64
	// Most bounds the bytes, of each of those among whom the share is divided; 0 is no bound.
	Most int64
	Use  Use
	Per  Unit
}

// Use says what a share is for.
type Use string

// The uses of a share.
const (
	// Works is memory that is taken for work and released when the work is done. Nobody else can have it before.
	Works Use = "works"
	// Yields is memory that is only taken while others leave it free, or that they can have back.
	Yields Use = "yields"
	// Free is memory that is left free for others.
	Free Use = "free"
	// Begins is an amount from which on something begins. It takes no memory.
	Begins Use = "begins"
	// Whole is a budget itself, as a part of a machine's free memory or disk.
	Whole Use = "whole"
)

// Unit says among whom a share is divided.
type Unit string

// The units of a share.
const (
	Run      Unit = "the run"           // all have it together
	Lane     Unit = "a lane"            // of one pipeline
	LaneJoin Unit = "a lane and a join" // of the joins that are in memory at a time
	Join     Unit = "a join"            // of these
	Scan     Unit = "a scan"            // of the run
)

// Of returns the bytes of a share of a budget, undivided.
func (s Share) Of(budget int64) int64 { return s.Among(budget, 1) }

// Among returns the bytes of one of n equal parts of a share.
func (s Share) Among(budget int64, n int) int64 {
	bytes, parts := s.Most, int64(max(n, 1))
	switch {
	case s.Num == 1:
		bytes = budget / (s.Den * parts)
	case s.Num > 0:
		bytes = int64(s.Part(float64(budget))) / parts
	}
	if s.Most > 0 {
		bytes = min(bytes, s.Most)
	}
	return bytes
}

// Part returns the part of an estimated budget, without the bound.
func (s Share) Part(budget float64) float64 {
	if s.Num == 0 {
		return 0
	}
	return float64(s.Num) * budget / float64(s.Den)
}

// Table returns all shares, in the order of this file.
func Table() []Share { return table }

var table []Share

func row(s Share) Share {
	table = append(table, s)
	return s
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

// The budgets. They are parts of what is free when a device or a store of spill files is opened.
var (
	DeviceBudget = row(Share{Name: "budget of a GPU", Num: 4, Den: 5, Use: Whole, Per: Run})
	HostBudget   = row(Share{Name: "budget of host memory", Num: 1, Den: 2, Use: Whole, Per: Run})
	DiskBudget   = row(Share{Name: "budget of the disk", Num: 4, Den: 5, Use: Whole, Per: Run})
)

// Strides, of the budget in which operators compute.
var (
	// LaneStrides bounds the strides of the lanes of a pipeline on the CPU: each lane is assumed to hold StridesOfLane.
	LaneStrides = row(Share{Name: "strides of lanes", Num: 1, Den: 2, Use: Works, Per: Run})
	// FrugalStrides is the same in a frugal run, whose only lane is assumed to hold StridesOfFrugalLane.
	FrugalStrides = row(Share{Name: "strides of a frugal lane", Num: 1, Den: 8, Use: Works, Per: Run})
	// ScanStride is the memory of a scan from which on its strides get shorter. Large pages may need more.
	ScanStride = row(Share{Name: "stride of a scan", Num: 1, Den: 4, Use: Begins, Per: Run})
	// GPUStride bounds a stride of a GPU. It is a part of the lesser of the budgets of the GPU and the host.
	GPUStride = row(Share{Name: "stride of a GPU", Num: 1, Den: 32, Most: 256 * mib, Use: Works, Per: Run})
	// GPUShortStride is what a stride of a GPU takes at least if the budgets have room for it.
	GPUShortStride = row(Share{Name: "short stride of a GPU", Num: 1, Den: 16, Most: 16 * mib, Use: Works, Per: Run})
	// PagesStride bounds a stride whose columns arrive in pages, if it is more than GPUStride. While it is decoded, its
	// pages take up to twice as much.
	PagesStride = row(Share{Name: "stride in pages", Num: 1, Den: 64, Most: 1 * gib, Use: Works, Per: Run})
	// SlowPagesStride is the same of pages that a GPU decompresses slowly (source.Paged).
	SlowPagesStride = row(Share{Name: "stride in slow pages", Num: 1, Den: 32, Most: 4 * gib, Use: Works, Per: Run})
	// OperatorWork is about what an operator takes at least while it works, however few the rows.
	OperatorWork = row(Share{Name: "work of an operator", Most: 128 * kib, Use: Works, Per: Run})
)

// The number of strides that a lane is assumed to hold, including those that are decoded for it or copied to a GPU.
const (
	StridesOfLane       = 8
	StridesOfFrugalLane = 16
	StridesOfGPU        = 12
)

// Joins.
var (
	// Resident bounds the partitions of all joins of a pipeline that stay in memory while strides stream past them: of
	// joins out of core and, in a frugal run, of all joins. In an ordinary run a build side that fits stays as it is.
	Resident = row(Share{Name: "resident partitions of joins", Num: 6, Den: 10, Use: Works, Per: Join})
	// FrugalPipeline bounds these partitions in a frugal run together with the scan and the strides of the pipeline.
	// FrugalResident is left to them even if the scan and the strides take more, as those of large pages and wide rows
	// do. Only then a frugal run is granted more than Phases says.
	FrugalPipeline = row(Share{Name: "resident partitions, scan and strides of a frugal pipeline", Num: 1, Den: 2,
		Use: Works, Per: Run})
	FrugalResident = row(Share{Name: "resident partitions of a frugal pipeline at least", Num: 1, Den: 8, Use: Works,
		Per: Run})
	// ResidentRoom bounds the room that is made for resident partitions before their tables are built. StreamRoom is
	// left free for strides at that time.
	ResidentRoom = row(Share{Name: "room made for resident partitions", Num: 3, Den: 4, Use: Begins, Per: Run})
	StreamRoom   = row(Share{Name: "room left by resident partitions", Num: 1, Den: 4, Use: Free, Per: Run})
	// JoinEarly is the memory of collected rows from which on a join goes out of core because of an estimate.
	JoinEarly = row(Share{Name: "rows of a build side that is too large", Num: 1, Den: 16, Use: Begins, Per: Lane})
	// JoinBatch bounds probe rows that are collected, three times: concatenated and reordered. The algorithms that
	// collect for themselves, PHJ-UR, SMJ and BUCKET, may have it for each join; Phases counts it once.
	JoinBatch = row(Share{Name: "batches of probe rows", Num: 1, Den: 4, Use: Works, Per: Lane})
	// JoinPairs bounds the build sides of pairs of partitions that are joined together. JoinPair is that of one
	// pair, from which on it is partitioned again.
	JoinPairs = row(Share{Name: "build sides of pairs of partitions", Num: 1, Den: 3, Use: Works, Per: LaneJoin})
	JoinPair  = row(Share{Name: "build side of one pair of partitions", Num: 1, Den: 2, Use: Works, Per: LaneJoin})
	// JoinBlock bounds a block of the build side that is joined with all probe rows. Each lane with a heavy hitter may
	// have one; Phases counts one.
	JoinBlock = row(Share{Name: "block of a build side", Num: 1, Den: 3, Use: Works, Per: Run})
	// TritonStrides is the memory of the strides that stay in the Triton join.
	TritonStrides = row(Share{Name: "strides that stay in the Triton join", Num: 3, Den: 8, Use: Yields, Per: Run})
	// KeyFilter bounds a Bloom filter of the keys of a build side. A larger one, which no cache holds, costs as much as
	// a lookup in the table of the join.
	KeyFilter = row(Share{Name: "filter of join keys", Most: 32 * mib, Use: Works, Per: Join})
)

// Group-bys.
var (
	// GroupTables bounds the tables of groups. A table is copied twice when it is flushed.
	GroupTables = row(Share{Name: "tables of groups", Num: 1, Den: 8, Use: Works, Per: Lane})
	// GroupSlots counts slots, not bytes, of tables that are indexed by the key: one for each 256 bytes of the budget.
	GroupSlots = row(Share{Name: "slots of tables indexed by the key", Num: 1, Den: 256, Use: Works, Per: Lane})
	// GroupRows bounds rows of partial aggregates that are not partitioned yet.
	GroupRows = row(Share{Name: "rows of partial aggregates", Num: 1, Den: 16, Use: Works, Per: Lane})
	// GroupWaiting bounds the short strides that wait in each lane until they are worth aggregating. They are strides
	// of the lane, a quarter of one at most.
	GroupWaiting = row(Share{Name: "short strides that wait", Num: 1, Den: 64, Most: 64 * mib, Use: Begins, Per: Run})
	// GroupMerge bounds the rows of the parts that are merged at a time. They are partitioned, and so are there twice.
	GroupMerge = row(Share{Name: "parts of groups that are merged", Num: 1, Den: 8, Use: Works, Per: Lane})
)

// Sorts and windows.
var (
	// SortRun bounds the rows of a sorted run or of a range of the result. SortWork bounds what they take while they
	// are sorted.
	SortRun  = row(Share{Name: "rows of a run", Num: 1, Den: 8, Use: Begins, Per: Lane})
	SortWork = row(Share{Name: "rows that are sorted", Num: 1, Den: 4, Use: Works, Per: Lane})
	// SortBegins is what is free when lanes begin to make runs. SortFree is what runs leave free on a GPU, once they
	// have become more than its budget.
	SortBegins = row(Share{Name: "free memory when runs are made", Num: 1, Den: 2, Use: Begins, Per: Run})
	SortFree   = row(Share{Name: "memory that runs leave free", Num: 1, Den: 2, Use: Free, Per: Run})
	// WindowParts bounds the parts that are computed, with what computing takes besides the rows.
	WindowParts = row(Share{Name: "parts of windows", Num: 1, Den: 2, Use: Works, Per: Lane})
)

// Rows that can spill.
var (
	// SpillBelow is the free memory below which operators that collect rows let these spill, once
	// each lane has SpillRows.
	SpillBelow = row(Share{Name: "free memory when rows spill", Num: 1, Den: 2, Use: Begins, Per: Run})
	SpillRows  = row(Share{Name: "rows of a lane that spill", Num: 1, Den: 32, Use: Begins, Per: Lane})
	// SpillFree is what rows that can spill leave to others, by moving while these work. If less than SpillSoon is
	// free, whoever adds rows waits until some have moved.
	SpillFree = row(Share{Name: "memory that spilling rows leave free", Num: 1, Den: 4, Use: Free, Per: Run})
	SpillSoon = row(Share{Name: "memory that spilling rows leave free at once", Num: 1, Den: 12, Use: Free, Per: Run})
	// SpillEarly is the memory from which on rows leave a GPU that will not stay.
	SpillEarly = row(Share{Name: "rows that will not stay", Num: 1, Den: 16, Use: Begins, Per: Run})
	// SpillMove is what moves to disk at least, so that partitions on disk are long.
	SpillMove = row(Share{Name: "rows that move at least", Num: 1, Den: 16, Most: gib, Use: Begins, Per: Run})
	// Headroom and HeadroomSoon are the same for rows that wait in host memory: strides and pages of those who work
	// there do not take more, even on many cores.
	Headroom = row(Share{Name: "host memory that waiting rows leave free", Num: 1, Den: 4, Most: 4 * gib, Use: Free,
		Per: Run})
	HeadroomSoon = row(Share{Name: "host memory that waiting rows leave free at once", Num: 1, Den: 12,
		Most: 4 * gib / 3, Use: Free, Per: Run})
	// ReadBatch bounds rows that are read into one stride, PutBatch rows of several strides of a GPU that are put
	// together. ReadAhead bounds what is read for a GPU before it is wanted. They are parts of the lesser of the
	// budgets of device and host.
	ReadBatch = row(Share{Name: "rows that are read at a time", Num: 1, Den: 32, Most: 64 * mib, Use: Works, Per: Lane})
	PutBatch  = row(Share{Name: "rows that are put together", Num: 1, Den: 32, Most: 256 * mib, Use: Works, Per: Lane})
	ReadAhead = row(Share{Name: "rows that are read ahead", Num: 1, Den: 8, Most: 512 * mib, Use: Yields, Per: Lane})
)

// Scans and outputs, of host memory.
var (
	// DecodeAhead bounds strides that are decoded before they are copied to a GPU. Pages and outputs have the rest.
	DecodeAhead = row(Share{Name: "strides decoded ahead", Num: 1, Den: 2, Most: 768 * mib, Use: Works, Per: Scan})
	// FilterFirst bounds the columns of a filter that decides first and a stride: beyond it, no filter does.
	FilterFirst = row(Share{Name: "filter that decides first", Num: 1, Den: 2, Use: Begins, Per: Scan})
	// LargePage is the size from which on an out-of-budget error names the page that it was for.
	LargePage = row(Share{Name: "page that an error names", Num: 1, Den: 8, Use: Begins, Per: Run})
	// OutputRows bounds rows that wait for more of their row group or partition. OutputQueue bounds the row groups that
	// wait to be encoded, unless there is only one.
	OutputRows  = row(Share{Name: "rows of an output", Num: 1, Den: 8, Most: 512 * mib, Use: Works, Per: Run})
	OutputQueue = row(Share{Name: "row groups of an output", Num: 1, Den: 8, Most: gib, Use: Works, Per: Run})
)

// A GPU, of its own budget.
var (
	// HostStrides is left free by strides of the CPU that are copied up before their turn.
	HostStrides = row(Share{Name: "memory that strides of the CPU leave free", Num: 1, Den: 8, Use: Free, Per: Run})
	// OutputOfGPU bounds rows of an output that wait to be encoded on the GPU, and those that are encoded at a time.
	OutputOfGPU = row(Share{Name: "rows of an output on a GPU", Num: 1, Den: 8, Most: 8 * gib, Use: Yields, Per: Run})
	// SelectIDs bounds ids that are allocated before they are counted. It is a part of what is free.
	SelectIDs = row(Share{Name: "ids of selected rows", Num: 1, Den: 16, Most: 64 * mib, Use: Yields, Per: Run})
	// PoolAhead bounds the memory that a GPU maps before it is wanted, PinnedAhead the host memory that is page-locked.
	PoolAhead   = row(Share{Name: "device memory mapped ahead", Num: 1, Den: 2, Most: 512 * mib, Use: Yields, Per: Run})
	PinnedAhead = row(Share{Name: "host memory mapped ahead", Num: 1, Den: 2, Most: 3 * gib, Use: Yields, Per: Run})
	// LinkTest bounds the copies that measure the link, at the end of a run, of both budgets.
	LinkTest = row(Share{Name: "copies that measure the link", Num: 1, Den: 8, Most: 32 * mib, Use: Yields, Per: Run})
)

// Memory is a budget that shares are parts of.
type Memory string

// The budgets of a run.
const (
	OfCPU     Memory = "host memory of a run on the CPU"
	OfGPU     Memory = "memory of a GPU"
	OfGPUHost Memory = "host memory of a run on a GPU"
)

// Phase is shares of a budget that may be in use at a time. A share occurs as often as its rows are in memory.
type Phase struct {
	Name   string
	Memory Memory
	Frugal bool // in a frugal run
	Shares []Share
}

// Sum returns the part of the budget that the shares come to.
func (p Phase) Sum() (sum float64) {
	for _, s := range p.Shares {
		sum += s.Part(1)
	}
	return sum
}

// MostOrdinary is the greatest sum of the phases of an ordinary run, and MostFrugal that of the phases of a frugal one.
// Few strides are as large as they may be, so an ordinary run is granted more than there is. If it is denied memory,
// it starts again frugally, and a frugal run is granted no more than there is.
const (
	MostOrdinary = 1.6
	MostFrugal   = 1.0
)

// Phases returns what may be in use at a time.
func Phases() []Phase {
	written := func(shares ...Share) []Share { return append(shares, OutputRows, OutputQueue) }
	cpu := func(name string, shares []Share) Phase { return Phase{Name: name, Memory: OfCPU, Shares: shares} }
	frugal := func(name string, shares []Share) Phase {
		return Phase{Name: name, Memory: OfCPU, Frugal: true, Shares: shares}
	}
	phases := []Phase{
		cpu("strides stream past joins and are written", written(LaneStrides, Resident, JoinBatch)),
		frugal("strides stream past joins and are written", written(FrugalPipeline, JoinBatch)),
		cpu("build sides are collected", []Share{LaneStrides, Resident}),
		frugal("build sides are collected", []Share{FrugalPipeline}),
	}
	for _, of := range []struct {
		phase   func(string, []Share) Phase
		strides Share
	}{{cpu, LaneStrides}, {frugal, FrugalStrides}} {
		phases = append(phases,
			of.phase("groups are collected", []Share{of.strides, GroupTables, GroupTables, GroupTables, GroupRows}),
			of.phase("groups are merged and written", written(of.strides, GroupMerge, GroupMerge, ReadBatch)),
			of.phase("runs are sorted", []Share{of.strides, SortWork}),
			of.phase("ranges are sorted and written", written(of.strides, SortWork, ReadBatch)),
			of.phase("windows are computed and written", written(of.strides, WindowParts, ReadBatch)),
			of.phase("pairs are joined and written", written(of.strides, JoinPairs, JoinBatch, ReadBatch)),
			of.phase("a large pair is joined and written", written(of.strides, JoinPair, ReadBatch)), // without batches
			of.phase("blocks are joined and written", written(of.strides, JoinBlock, JoinBatch, ReadBatch)))
	}
	strides := append(slices.Repeat([]Share{GPUStride}, StridesOfGPU), OutputOfGPU)
	gpu := func(name string, shares ...Share) Phase {
		return Phase{Name: name, Memory: OfGPU, Shares: append(shares, strides...)}
	}
	return append(phases,
		gpu("groups are collected", GroupTables, GroupTables, GroupTables, GroupRows),
		gpu("groups are merged", GroupMerge, GroupMerge, PutBatch, ReadAhead),
		gpu("ranges are sorted", SortWork, PutBatch, ReadAhead),
		gpu("windows are computed", WindowParts, PutBatch, ReadAhead),
		gpu("strides stream past joins", Resident, JoinBatch),
		gpu("pairs are joined", JoinPairs, JoinBatch, PutBatch, ReadAhead),
		gpu("a large pair is joined", JoinPair, JoinBatch, PutBatch),
		Phase{Name: "strides are decoded and rows are written", Memory: OfGPUHost, Shares: written(DecodeAhead)})
}
