#!/usr/bin/env bash
# Compiles the kernels of this directory into one fatbin a source, and writes the
# manifest that proves which sources, flags and compiler they were made from.
# The compiler is taken from $NVCC, or else set up in .nvcc at the root of the
# repository: no GPU and no CUDA toolkit are needed. Run by `go generate ./gpu/cuda`.
#
#   build.sh DIR    compiles the kernels that use bulk copies without them, for Hopper,
#                   into DIR: compute-sanitizer's initcheck does not see what those write
set -euo pipefail
[ $# -eq 0 ] || set -- "$(realpath "$1")"
cd "$(dirname "$0")"
root="$(cd ../../.. && pwd)"

version=13.0.88
if [ -z "${NVCC:-}" ]; then
	venv="$root/.nvcc"
	if ! ls "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc >/dev/null 2>&1; then
		python3 -m venv "$venv"
		"$venv/bin/pip" install --quiet --disable-pip-version-check \
			nvidia-cuda-nvcc==$version nvidia-cuda-crt==$version nvidia-nvvm==$version \
			nvidia-cuda-runtime==13.0.96 nvidia-cuda-cccl==13.0.85
	fi
	NVCC="$(ls "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/nvcc)"
fi
"$NVCC" --version | grep -q "V$version" || {
	echo "the kernels are built with nvcc $version, $NVCC is another: a newer one makes PTX that drivers in use refuse" >&2
	exit 1
}

flags="-fatbin -O3 -std=c++17 -fmad=false -Wno-deprecated-gpu-targets"
include="$(dirname "$NVCC")/../include/cccl"
if [ $# -gt 0 ]; then
	"$NVCC" $flags -gencode arch=compute_80,code=sm_90 -I"$include" partition.cu -o "$1/partition.fatbin"
	exit
fi
for sm in 80 86 89 90 100 120; do
	flags="$flags -gencode arch=compute_$sm,code=sm_$sm"
done
flags="$flags -gencode arch=compute_90,code=compute_90 -Xfatbin -compress-all"

# Sources whose fatbin is already that of the manifest are left alone.
build() {
	src="$1"
	[ -f "$src" ] || { rm -f "${src%.cu}.fatbin"; return; }
	"$NVCC" $flags -I"$include" "$src" -o "${src%.cu}.fatbin" || return
	echo "built ${src%.cu}.fatbin"
}
export -f build
export NVCC flags include
stale="$(go run manifest.go stale)"
if [ -n "$stale" ]; then
	printf '%s\n' $stale | xargs -P "$(nproc)" -I{} bash -c 'build {}'
fi
go run manifest.go write
