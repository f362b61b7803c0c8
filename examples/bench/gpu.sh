#!/usr/bin/env bash
# Runs the tests and measurements that need a GPU. The machine needs a driver and a
# checkout, but neither Go nor a network. The programs are built elsewhere:
#
#   for p in ./gpu/cuda ./pipeline ./examples; do CGO_ENABLED=0 go test -c -o BIN/ $p; done
#   CGO_ENABLED=0 go build -o BIN/gstream ./cmd/gstream
#   gpu/cuda/kernels/build.sh BIN
#
#   examples/bench/gpu.sh BIN OUT tests sanitizers bench joins groups jobs
#
# runs these parts one after the other and prints the result of each. Logs, JSON and
# pictures go to OUT. It exits with 1 when a part failed.
#
#   tests       the conformance suite and the rest of gpu/cuda, random pipelines, and the
#               example jobs on both devices
#   sanitizers  memcheck, initcheck and racecheck on the thinned suite, each to its end
#               and alone, because they take far longer at the same time
#               (TOOLS="memcheck" runs one of them, RUN=REGEXP some of the tests, LIMIT
#               is the seconds for each)
#   bench       the primitives, the joins that count most, and a timeline of streaming
#   joins       all joins by all algorithms (CASES="acceptance,zipf" are some of them)
#   jobs        the example jobs on DATA, TPC-H tables as Parquet files, against DuckDB,
#               by gpu.py (ARGS="--jobs q06 --runs 5" are its flags), and timelines of
#               some of them (TIMELINES="tpch/q06 etl/filter")
set -uo pipefail
bin=$(realpath "$1") out=$(realpath "$2")
shift 2
cd "$(dirname "$0")/../.."

rm -f "$out/failed"

# run writes what a command prints to a log, and its last lines here. What failed goes
# into a file, because parts run in subshells.
run() {
	local log=$out/$1.log rc=0
	shift
	"$@" >"$log" 2>&1 || rc=$?
	[ $rc = 0 ] || echo "${log##*/}" >>"$out/failed"
	echo "== ${log##*/}: exit $rc, $(grep -c -- '--- PASS' "$log") passed, $(grep -c -- '--- FAIL' "$log") failed"
	tail -n "${TAIL:-3}" "$log"
}

tests() {
	(cd gpu/cuda && run conformance timeout 200 "$bin/cuda.test" -test.v)
	(cd pipeline && run pipeline timeout 120 "$bin/pipeline.test" -test.v)
	(cd examples && run examples timeout 120 "$bin/examples.test" -test.v)
}

sanitizers() {
	for tool in ${TOOLS:-memcheck initcheck racecheck}; do
		local thin=1 kernels= tests='TestConformance|Host|Counts|FloatSums'
		case $tool in
		initcheck) kernels=$bin ;;                 # it does not see what bulk copies write
		racecheck) thin=7 tests=TestConformance ;; # 4 ms a launch and more: nine minutes
		esac
		(cd gpu/cuda && GSTREAM_THIN=$thin GSTREAM_KERNELS=$kernels run "$tool" timeout "${LIMIT:-600}" compute-sanitizer --tool "$tool" \
			--print-limit 20 "$bin/cuda.test" -test.run "${RUN:-$tests}" -test.v)
	done
}

bench() {
	TAIL=1000 run bench "$bin/gstream" bench all --json "$out/bench.json" --plot "$out/bench.svg"
	run stream "$bin/gstream" bench stream --runs 3 --timeline "$out/stream.html"
}

joins() {
	TAIL=1000 run joins "$bin/gstream" bench join --cases "${CASES:-all}" --algorithm all --json "$out/joins.json" --plot "$out/joins.svg"
}

groups() {
	TAIL=1000 run groups "$bin/gstream" bench groupby --cases "${CASES:-all}" --algorithm all --runs 3 --json "$out/groupby.json" --plot "$out/groupby.svg"
}

jobs() {
	cat "$DATA"/*.parquet >/dev/null # into the page cache
	TAIL=40 run jobs python3 examples/bench/gpu.py --gstream "$bin/gstream" --data "$DATA" --tmp "${TMPDIR:-/dev/shm}" --json "$out/jobs.json" ${ARGS:-}
	for job in ${TIMELINES:-}; do
		TAIL=10 run "${job##*/}" "$bin/gstream" run "examples/$job.yaml" --set "data=$DATA" --set "out=${TMPDIR:-/dev/shm}/timeline.parquet" \
			--overwrite --timeline "$out/${job##*/}.html"
	done
	rm -f "${TMPDIR:-/dev/shm}/timeline.parquet"
}

for part in "$@"; do "$part"; done
[ ! -e "$out/failed" ] || { echo "failed:" $(cat "$out/failed"); exit 1; }
