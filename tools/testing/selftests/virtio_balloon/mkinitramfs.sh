#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
#
# Packs the initramfs of a balloon test guest: /init, the modules it needs in
# the order in which they load (/modules/NN-name.ko), and the balloon driver
# (/virtio_balloon.ko) if it is a module.
set -eu

usage() {
	cat <<END
usage: mkinitramfs.sh --init PROGRAM -o FILE [--balloon MODULE]
                      [--modules-root DIR --release RELEASE --module NAME ...]

  --init PROGRAM      the statically linked init
  -o FILE             the initramfs to write
  --balloon MODULE    the balloon driver, .ko or .ko.xz
  --modules-root DIR  where lib/modules/RELEASE is
  --release RELEASE   kernel release
  --module NAME       module to load, with what it depends on; repeatable
END
}

die() {
	echo "mkinitramfs.sh: $*" >&2
	exit 1
}

init='' out='' balloon='' root='' release='' names=''
while [ $# -gt 0 ]; do
	case $1 in
	--help | -h) usage; exit 0 ;;
	--init | -o | --balloon | --modules-root | --release | --module)
		[ $# -ge 2 ] || die "$1 needs an argument"
		case $1 in
		--init) init=$2 ;;
		-o) out=$2 ;;
		--balloon) balloon=$2 ;;
		--modules-root) root=${2%/} ;;
		--release) release=$2 ;;
		--module) names="$names $2" ;;
		esac
		shift 2 ;;
	*) usage >&2; exit 2 ;;
	esac
done
if [ -z "$init" ] || [ -z "$out" ]; then
	usage >&2
	exit 2
fi
[ -x "$init" ] || die "no init program $init"
command -v cpio >/dev/null || die "cpio is missing (Debian package cpio)"

stage=$(mktemp -d)
trap 'rm -rf "$stage" "$out.tmp"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# Copies a module, unpacked, as kernels differ in what they can unpack.
copy_module() {
	case $1 in
	*.xz) xz -dc "$1" >"$2" ;;
	*) cp "$1" "$2" ;;
	esac
}

mkdir -p "$stage/modules" "$stage/dev" "$stage/proc" "$stage/sys" \
	"$stage/mnt" "$stage/tmp"
cp "$init" "$stage/init"
[ -z "$balloon" ] || copy_module "$balloon" "$stage/virtio_balloon.ko"

moddir=$root/lib/modules/$release
[ -z "$names" ] || [ -n "$release" ] || die "--module needs --release"
[ -z "$names" ] || [ -r "$moddir/modules.dep" ] ||
	die "no $moddir/modules.dep (depmod writes it)"
number=10
# Lines of modules.dep are "path: what it needs, nearest first".
add_module() {
	file=$(echo "$1" | tr - _)
	line=$(awk -F: -v want="$file" '{
		n = $1; sub(/.*\//, "", n); sub(/\.ko.*/, "", n)
		gsub(/-/, "_", n)
		if (n == want) { print; exit } }' "$moddir/modules.dep")
	if [ -z "$line" ]; then
		tr - _ <"$moddir/modules.builtin" | grep -q "/$file\.ko$" ||
			die "no module $1 in $moddir"
		return 0
	fi
	deps=
	for dep in ${line#*:}; do deps="$dep $deps"; done
	for path in $deps "${line%%:*}"; do
		base=$(basename "$path" .xz)
		[ -z "$(find "$stage/modules" -name "[0-9]*-$base")" ] ||
			continue
		copy_module "$moddir/$path" "$stage/modules/$number-$base"
		number=$((number + 1))
	done
}
for name in $names; do add_module "$name"; done

(cd "$stage" && find . | LC_ALL=C sort | cpio -o -H newc --quiet -R 0:0) \
	>"$out.tmp"
mv "$out.tmp" "$out"
