#!/usr/bin/env bash
# Builds the stand-in for libcuda.so.1: build.sh OUTPUT.so [KERNEL.cu ...]. Without
# kernels, those of gpu/cuda/kernels. CXX is the compiler, CXXFLAGS are extra flags,
# OBJECTS a folder that keeps object files by the hash of what they are made from.
set -euo pipefail
shopt -s nullglob
output="$1"
shift
here="$(cd "$(dirname "$0")" && pwd)"
kernels="$here/../kernels"
[ $# -gt 0 ] || set -- "$kernels"/*.cu

objects="${OBJECTS:-$(dirname "$output")/objects}"
mkdir -p "$objects"
# Kernels are checked for what a GPU refuses or does otherwise than this machine:
# such code ends in a trap.
checks="-fsanitize=alignment,bounds,shift-exponent -fsanitize-undefined-trap-on-error"
# With GSTREAM_EMULATOR_RACES they also say what they access: see src/shadow.cpp.
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

list="$(printf '%s\n' "$here"/src/*.cpp "$@" | xargs -P "$(nproc)" -I{} bash -euo pipefail -c 'compile "$1"' _ {})"
${CXX:-g++} -shared -o "$output.$$" $list -lpthread -ldl
mv "$output.$$" "$output"
