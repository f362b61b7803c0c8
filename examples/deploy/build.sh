#!/usr/bin/env bash
# Builds what a package of gstream has, into a folder: the binary, shell completion, manual pages, and a Debian package
# if dpkg-deb is there. Usage: examples/deploy/build.sh [FOLDER [VERSION]]
set -euo pipefail
cd "$(dirname "$0")/../.."
out="${1:-.tools/deploy}"
version="${2:-0.0.0}"
mkdir -p "$out"
out="$(cd "$out" && pwd)"
tree="$out/tree"
rm -rf "$tree"
install -d "$tree/usr/bin" "$tree/usr/share/man/man1" "$tree/usr/share/bash-completion/completions" \
	"$tree/usr/share/zsh/vendor-completions" "$tree/usr/share/fish/vendor_completions.d" \
	"$tree/usr/lib/systemd/system" "$tree/usr/share/doc/gstream" "$tree/etc/gstream"

CGO_ENABLED=0 go build -trimpath -ldflags "-s -w" -o "$tree/usr/bin/gstream" ./cmd/gstream
gstream="$tree/usr/bin/gstream"
"$gstream" man "$tree/usr/share/man/man1"
gzip -9nf "$tree"/usr/share/man/man1/*.1
"$gstream" completion bash >"$tree/usr/share/bash-completion/completions/gstream"
"$gstream" completion zsh >"$tree/usr/share/zsh/vendor-completions/_gstream"
"$gstream" completion fish >"$tree/usr/share/fish/vendor_completions.d/gstream.fish"
install -m 644 examples/deploy/systemd/gstream@.service examples/deploy/systemd/gstream@.timer "$tree/usr/lib/systemd/system/"
install -m 644 LICENSE "$tree/usr/share/doc/gstream/copyright"

if ! command -v dpkg-deb >/dev/null; then
	echo "dpkg-deb is missing, so there is no Debian package; the files are in $tree" >&2
	exit 0
fi
install -d "$tree/DEBIAN"
cat >"$tree/DEBIAN/control" <<CONTROL
Package: gstream
Version: $version
Architecture: $(dpkg --print-architecture)
Maintainer: gstream <gstream@localhost>
Depends: libc6
Section: database
Priority: optional
Description: relational pipelines over Parquet files, on CPUs and GPUs
 gstream reads Parquet, CSV and JSON lines, filters, joins, groups and sorts, and writes
 Parquet, CSV and JSON lines, also from and to object stores. What is larger than memory
 spills to disk. It uses an NVIDIA GPU if there is one.
CONTROL
dpkg-deb --build --root-owner-group -Zgzip "$tree" "$out/gstream.deb" >/dev/null
rm -r "$tree/DEBIAN"
echo "$out/gstream.deb"
