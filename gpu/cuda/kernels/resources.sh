#!/usr/bin/env bash
# Writes resources.txt: for each fatbin its SHA-256, and for each of its kernels the bytes of
# static shared memory and the registers a thread, the most over all architectures. From
# sm_90 on cuobjdump adds the 1,024 bytes that the system reserves, which no limit counts.
# The emulator refuses launches by the file, as a driver does. Run by `go generate ./gpu/cuda`, after build.sh.
# cuobjdump is taken from $CUOBJDUMP, or else set up in .nvcc at the root of the repository.
set -euo pipefail
cd "$(dirname "$0")"
venv="$(cd ../../.. && pwd)/.nvcc"
find_cuobjdump() { ls "$venv"/lib/python3*/site-packages/nvidia/cu13/bin/cuobjdump 2>/dev/null; }
if [ -z "${CUOBJDUMP:-}" ] && ! CUOBJDUMP="$(find_cuobjdump)"; then
	[ -x "$venv/bin/pip" ] || python3 -m venv "$venv"
	"$venv/bin/pip" install --quiet --disable-pip-version-check nvidia-cuda-cuobjdump==13.2.78
	CUOBJDUMP="$(find_cuobjdump)"
fi
for fatbin in *.fatbin; do
	echo "$fatbin $(sha256sum "$fatbin" | cut -d' ' -f1)"
	"$CUOBJDUMP" -res-usage "$fatbin" | awk '
		$1 == "arch" { reserved = substr($3, 4) + 0 >= 90 ? 1024 : 0 }
		$1 == "Function" { name = $2; sub(/:$/, "", name) }
		/REG:/ {
			for (i = 1; i <= NF; i++) {
				split($i, field, ":")
				if (field[1] == "SHARED" && field[2] - reserved >= shared[name] + 0) shared[name] = field[2] - reserved
				if (field[1] == "REG" && field[2] + 0 >= registers[name] + 0) registers[name] = field[2]
			}
		}
		END { for (name in registers) print name, shared[name], registers[name] }' | LC_ALL=C sort
done >resources.txt.new
mv resources.txt.new resources.txt
