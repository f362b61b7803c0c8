package parquet

import (
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/gstream/gstream/gpu"
	"github.com/gstream/gstream/gpu/phrase"
	"github.com/gstream/gstream/sink"
)

// Options configure how Parquet is written. The zero value lacks only a lease; EnsureDefaults sets
// the other options.
type Options struct {
	// Compression is snappy (the default), zstd, gzip, brotli, lz4_raw or none.
	Compression string `yaml:"compression" json:"compression,omitempty" doc:"Codec of the pages. For arrow: lz4, zstd or none, which is the default there." enum:"snappy,zstd,gzip,brotli,lz4_raw,lz4,none" default:"snappy"`
	// Level is the effort of zstd (1 to 22), gzip (1 to 9) or brotli (1 to 11);
	// 0 means the codec's default.
	Level int `yaml:"level" json:"level,omitempty" doc:"Effort of zstd (1 to 22), gzip (1 to 9) or brotli (1 to 11); 0 is the codec's default." default:"0"`
	// RowGroupRows is the number of rows in a row group; the default is 122880.
	RowGroupRows int `yaml:"row_group_rows" json:"row_group_rows,omitempty" doc:"Rows of a row group, if they take at most 512 MiB and an eighth of the memory budget." default:"122880"`
	// PageRows and PageBytes bound a data page: by rows (default 32768) and by
	// uncompressed bytes (default 1048576).
	PageRows  int `yaml:"page_rows" json:"page_rows,omitempty" doc:"Maximum rows of a data page." default:"32768"`
	PageBytes int `yaml:"page_bytes" json:"page_bytes,omitempty" doc:"Maximum uncompressed bytes of a data page." default:"1048576"`
	// Dictionary is auto (the default: if it makes a column smaller) or off.
	Dictionary string `yaml:"dictionary" json:"dictionary,omitempty" doc:"Dictionaries where they make a column smaller (auto), or none (off)." enum:"auto,off" default:"auto"`
	// Encoding is auto (the default: integers as packed differences, DELTA_BINARY_PACKED, and
	// floats as streams of bytes, BYTE_STREAM_SPLIT, if that makes them smaller) or plain, for
	// readers that know only PLAIN and dictionaries.
	Encoding string `yaml:"encoding" json:"encoding,omitempty" doc:"Integers as packed differences and floats as streams of bytes, where that makes them smaller (auto), or only PLAIN and dictionaries, for old readers (plain)." enum:"auto,plain" default:"auto"`
	// DictionaryColumns, when not empty, lists the only columns that may have a
	// dictionary.
	DictionaryColumns []string `yaml:"dictionary_columns" json:"dictionary_columns,omitempty" doc:"The only columns that may get a dictionary; all when empty."`
	// BloomFilters lists columns with a Bloom filter for each row group, by which readers skip row groups when they
	// look for single values. A filter takes ten bits for each distinct value.
	BloomFilters []string `yaml:"bloom_filters" json:"bloom_filters,omitempty" doc:"Columns with a Bloom filter in each row group (10 bits for each distinct value), by which readers that look for single values skip row groups."`
	// RowsPerFile, when not 0, makes the target a directory. It has files
	// part-00000.parquet, part-00001.parquet … of at most that many rows, and a hidden
	// manifest that lists these files.
	RowsPerFile int64 `yaml:"rows_per_file" json:"rows_per_file,omitempty" doc:"Write a folder of files part-00000.parquet and so on, of at most that many rows, in the order of the rows." default:"0"`
	// Files, when not 0, makes the target a directory of at most that many files of about equal
	// size. Row groups go to the files in turn, or, with Sorted, each file has a range of the rows.
	Files int `yaml:"files" json:"files,omitempty" doc:"Write a folder of at most that many files part-00000.parquet and so on, of about equal size, all at the same time. If the rows are sorted, the files continue each other in the order of their names. Otherwise row groups go to the files in turn. At most 256." default:"0"`
	// PartitionBy, when not empty, makes the target a directory with a directory for each
	// value of these columns, as in y=2024/m=3/part-00000.parquet. The files do not have
	// these columns, unless WritePartitionColumns is set.
	PartitionBy           []string `yaml:"partition_by" json:"partition_by,omitempty" doc:"Write a directory with folders for the values of these columns, as in y=2024/m=3/part-00000.parquet, which a source reads as columns again. The files themselves do not have them."`
	WritePartitionColumns bool     `yaml:"write_partition_columns" json:"write_partition_columns,omitempty" doc:"Keep the columns of partition_by in the files too." default:"false"`
	// Metadata has key-value pairs for the files.
	Metadata map[string]string `yaml:"metadata" json:"metadata,omitempty" doc:"Key-value metadata of the files, as in {author: me}. Pairs of the source that are still true are copied, too; a pair here replaces one of the same key."`
	// Sync makes Commit wait until the output is on disk, so that it survives a crash of
	// the machine. Without Sync every process still sees the whole output or none of it.
	Sync bool `yaml:"sync" json:"sync,omitempty" doc:"Wait at the end until the output is on disk, so that it survives a crash of the machine." default:"false"`
	// Overwrite lets Commit replace a file, or a directory that has only the files of an
	// earlier output. It never replaces anything else.
	Overwrite bool `yaml:"overwrite" json:"overwrite,omitempty" doc:"true replaces a file, or a folder in which everything is of an earlier output. partitions replaces the folders of the values of partition_by that the run writes, and keeps the others. sources replaces a folder as true does, in which the job has read all other files." default:"false"`
	// OverwritePartitions replaces the folders of partitions that are written, each at once, and keeps all others. It
	// needs PartitionBy. A folder is replaced if everything in it is of an earlier output, or in Read.
	OverwritePartitions bool `yaml:"-" json:"overwrite_partitions,omitempty"`
	// OverwriteSources is Overwrite of a directory whose other files are in Read.
	OverwriteSources bool `yaml:"-" json:"overwrite_sources,omitempty"`
	// Append adds files to a directory. Their numbers follow those of the files that are there.
	Append bool `yaml:"append" json:"append,omitempty" doc:"Add files to a folder, behind those that are there." default:"false"`
	// Read has the sizes of the files from which the rows come, by their paths with links resolved.
	Read map[string]int64 `yaml:"-" json:"-"`

	// Discard removes objects at Commit; nothing appears.
	Discard bool `yaml:"-" json:"-"`
	// Sorted, when set, says that the rows are sorted. It returns how many rows there will be, at
	// least by estimate, and is called when the first rows have arrived.
	Sorted func() int64 `yaml:"-" json:"-"`
	// Threads bounds the goroutines that encode; 0 means GOMAXPROCS.
	Threads int `yaml:"-" json:"-"`
	// Lease pays for encoded row groups until they are written, and for encoding.
	Lease *gpu.Lease `yaml:"-" json:"-"`
	// Devices encode columns that lie in their memory; Keeps says which. FromOneDevice says when only the first
	// one does.
	Devices []sink.OnDevice `yaml:"-" json:"-"`
	// AnyOrder says that row groups need not have the order of the strides: each has rows of one device.
	AnyOrder bool `yaml:"-" json:"-"`
	// Trace, when set, is called after every task of encoding or writing, on any
	// goroutine, with its name and its start time.
	Trace func(what string, begin time.Time) `yaml:"-" json:"-"`
}

// maxFiles bounds Files, because that many files are open at a time.
const maxFiles = 256

// partBytes is the size from which on a file of a directory gets no more row groups, if only a
// slash at the end of the path asks for a directory. It is large enough for readers to be as fast
// as with one file, and small enough for several files to be written at a time.
const partBytes = 128 << 20

// Directory reports whether the target is a directory of files: because an option asks for it, or
// because the path ends with a slash.
func (o *Options) Directory(path string) bool {
	return o.RowsPerFile > 0 || o.Files > 0 || len(o.PartitionBy) > 0 || strings.HasSuffix(path, "/")
}

// EnsureDefaults sets the options that are not set.
func (o *Options) EnsureDefaults() {
	if o.Compression == "" {
		o.Compression = "snappy"
	}
	if o.RowGroupRows == 0 {
		o.RowGroupRows = 122880
	}
	if o.PageRows == 0 {
		o.PageRows = 32768
	}
	if o.PageBytes == 0 {
		o.PageBytes = 1 << 20
	}
	if o.Dictionary == "" {
		o.Dictionary = "auto"
	}
	if o.Encoding == "" {
		o.Encoding = "auto"
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
}

// Validate reports all faults of the options at once. Call it after EnsureDefaults.
func (o *Options) Validate() error {
	var faults []error
	bad := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if levels, ok := codecLevels[o.Compression]; !ok {
		bad("compression %q is unknown: it is one of %s", o.Compression, strings.Join(codecNames, ", "))
	} else if o.Level < 0 || o.Level > levels {
		if levels == 0 {
			bad("level %d: compression %s has no levels", o.Level, o.Compression)
		} else {
			bad("level %d is out of range: %s has levels 1 to %d, and 0 for its default", o.Level, o.Compression,
				levels)
		}
	}
	if o.RowGroupRows < 1 || o.RowGroupRows > 1<<30 {
		bad("row_group_rows %d is out of range: 1 to %d", o.RowGroupRows, 1<<30)
	}
	if o.PageRows < 1 || o.PageRows > 1<<30 {
		bad("page_rows %d is out of range: 1 to %d", o.PageRows, 1<<30)
	}
	if o.PageBytes < 1 || o.PageBytes > 1<<30 {
		bad("page_bytes %d is out of range: 1 to %d", o.PageBytes, 1<<30)
	}
	if !slices.Contains([]string{"auto", "off"}, o.Dictionary) {
		bad("dictionary %q is unknown: it is auto or off", o.Dictionary)
	}
	if !slices.Contains([]string{"auto", "plain"}, o.Encoding) {
		bad("encoding %q is unknown: it is auto or plain", o.Encoding)
	}
	if o.RowsPerFile < 0 {
		bad("rows_per_file %d is negative", o.RowsPerFile)
	}
	switch {
	case o.Files < 0 || o.Files > maxFiles:
		bad("files %d is out of range: 1 to %d, as that many are open at a time; rows_per_file writes any number",
			o.Files, maxFiles)
	case o.Files > 0 && o.RowsPerFile > 0:
		bad("files and rows_per_file both say which rows a file has; set one of them")
	case o.Files > 0 && len(o.PartitionBy) > 0:
		bad("files is not for an output with partition_by, whose values say which rows a file has; rows_per_file " +
			"bounds the rows of its files")
	}
	switch {
	case o.Append && (o.Overwrite || o.OverwritePartitions):
		bad("append and overwrite exclude each other; set one of them")
	case o.OverwritePartitions && len(o.PartitionBy) == 0:
		bad("overwrite: partitions needs partition_by, whose values say which folders are replaced")
	}
	size := 0
	for _, key := range slices.Sorted(maps.Keys(o.Metadata)) {
		value := o.Metadata[key]
		if size += len(key) + len(value); key == "" || !utf8.ValidString(key) || !utf8.ValidString(value) {
			bad("metadata %q: a key is a text that is not empty, and its value is a text, both in UTF-8", key)
		}
	}
	if size > maxMetadata {
		bad("metadata has %d bytes, and at most %d are possible", size, maxMetadata)
	}
	return errors.Join(faults...)
}

// maxMetadata bounds the key-value metadata of a file.
const maxMetadata = 16 << 20

// CheckColumns checks the columns that the options name.
func CheckColumns(s *gpu.Schema, opt Options) error {
	for _, name := range opt.DictionaryColumns {
		if !slices.Contains(s.Names(), name) {
			return fmt.Errorf("dictionary_columns names %q, which is not a column; the columns are %s", name,
				phrase.Some(s.Names(), 20, ", "))
		}
	}
	for _, name := range opt.BloomFilters {
		switch i := s.Index(name); {
		case i < 0:
			return fmt.Errorf("bloom_filters names %q, which is not a column; the columns are %s", name,
				phrase.Some(s.Names(), 20, ", "))
		case s.Fields[i].Type.Kind == gpu.Bool:
			return fmt.Errorf("bloom_filters names %q, a BOOLEAN: most row groups have both values; leave it out", name)
		case s.Fields[i].Type.IsNested():
			return fmt.Errorf("bloom_filters names %q, a %s: a nested column has no Bloom filter; leave it out", name,
				s.Fields[i].TypeName())
		}
	}
	seen := map[string]bool{}
	for _, name := range opt.PartitionBy {
		switch i := s.Index(name); {
		case i < 0:
			return fmt.Errorf("partition_by names %q, which is not a column; the columns are %s", name,
				phrase.Some(s.Names(), 20, ", "))
		case seen[name]:
			return fmt.Errorf("partition_by names %q twice", name)
		case !utf8.ValidString(name):
			return fmt.Errorf("partition_by names %q, which is not UTF-8; give the column another name", name)
		case name == "":
			return errors.New("partition_by names the column \"\", and a folder =… is not read as a column; give the " +
				"column another name")
		case s.Fields[i].Type.Kind == gpu.Binary, s.Fields[i].Type.IsNested():
			return fmt.Errorf("partition_by names %q, whose type %s has no text for the name of a folder", name,
				s.Fields[i].TypeName())
		}
		for _, other := range s.Names() {
			if other != name && strings.EqualFold(other, name) {
				return fmt.Errorf("partition_by names %q, and there is a column %q: a source takes the name of a "+
					"folder for both, as case does not count there; rename one of them", name, other)
			}
		}
		seen[name] = true
	}
	if len(opt.PartitionBy) > 0 && len(opt.PartitionBy) == s.Len() && !opt.WritePartitionColumns {
		return errors.New("partition_by names all columns, so that none is left for the files; set " +
			"write_partition_columns, or name fewer")
	}
	if opt.WritePartitionColumns && len(opt.PartitionBy) == 0 {
		return errors.New("write_partition_columns is for an output with partition_by")
	}
	return nil
}
