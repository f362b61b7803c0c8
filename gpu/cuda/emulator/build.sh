#!/usr/bin/env bash
# Builds the stand-in for libcuda.so.1: build.sh OUTPUT.so [KERNEL.cu ...]. Without
# kernels it takes those of gpu/cuda/kernels. CXX is the compiler, CXXFLAGS are additional
# flags, OBJECTS is a folder that keeps object files, named by the hash of their sources.
set -euo pipefail
shopt -s nullglob
output="$1"
shift
here="$(cd "$(dirname "$0")" && pwd)"
kernels="$here/../kernels"
[ $# -gt 0 ] || set -- "$kernels"/*.cu

objects="${OBJECTS:-$(dirname "$output")/objects}"
mkdir -p "$objects"
# Kernels are checked for code that a GPU refuses, or executes differently from this
# machine. Such code traps.
checks="-fsanitize=alignment,bounds,shift-exponent -fsanitize-undefined-trap-on-error"
# With GSTREAM_EMULATOR_RACES they also report their accesses: see src/shadow.cpp.
[ -z "${GSTREAM_EMULATOR_RACES:-}" ] || checks="$checks -g -DEMULATOR_RACES -fsanitize=thread --param tsan-distinguish-volatile=1"
common="-std=c++17 -fPIC -ffp-contract=off -fno-strict-aliasing -fvisibility=hidden -w ${CXXFLAGS:-}"

compile() {
	src="$1" flags="$common -O2"
	case "$src" in
	*.cu) flags="$flags $checks -include $here/src/emulator.h -I$kernels -x c++" ;;
	*) flags="$flags -fvisibility=default" ;;
	esac
	key="$( (echo "$flags"; cat "$src" "$here"/src/*.h "$kernels"/*.cuh) | sha256sum | cut -c1-32)"
	object="$objects/$key.o"
	if [ ! -e "$object" ]; then
		${CXX:-g++} $flags -c "$src" -o "$object.$$"
		mv "$object.$$" "$object"
	fi
	echo "$object"
}
export -f compile
export here kernels objects checks common

# The shared memory and registers of the compiled kernels.
resources="$objects/resources.$$.cpp"
trap 'rm -f "$resources"' EXIT
{
	echo "#include \"$here/src/execute.h\""
	echo 'const emulator::Resources emulator::resources[] = {'
	for dir in $(dirname -- "$@" | sort -u); do
		[ ! -e "$dir/resources.txt" ] || awk 'NF == 3 { printf "{\"%s\", %d, %d},\n", $1, $2, $3 }' "$dir/resources.txt"
	done
	echo '{nullptr, 0, 0}};'
} >"$resources"

list="$(printf '%s\n' "$here"/src/*.cpp "$resources" "$@" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'compile "$1"' _ {})"
${CXX:-g++} -shared -o "$output.$$" $list -lpthread -ldl
mv "$output.$$" "$output"
