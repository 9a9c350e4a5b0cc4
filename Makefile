# SPDX-License-Identifier: GPL-2.0
#
# The front door: every command that a person types. `make help` lists them.

MAKEFLAGS += --no-print-directory
Q := $(if $(filter 1,$(V)),,@)
.DELETE_ON_ERROR:

# Debian packages, the only place that names them
DEMO_PACKAGES := gcc libc6-dev linux-headers-6.12-cloud-amd64 qemu-system-x86 \
	pkg-config libjansson-dev cpio kmod xz-utils e2fsprogs gnuplot-nox \
	fonts-dejavu-core
CHECK_PACKAGES := $(DEMO_PACKAGES) linux-headers-cloud-amd64 linux-source-6.12 \
	ccache bc bison flex libelf-dev libssl-dev lz4 perl python3 sparse git \
	python3-sphinx ca-certificates

SELFTEST := tools/testing/selftests/virtio_balloon
LANES := module-6.12 module-6.1 tree
DRIVER := drivers/virtio/virtio_balloon.c include/uapi/linux/virtio_balloon.h \
	dkms/Kbuild dkms/compat.h
OVERLAY := $(shell find drivers include mm -type f) $(wildcard series/edits/*)

.PHONY: help
help:
	@echo 'Commands (out/ is where everything generated goes):'
	@echo
	@echo '  make demo      one balloon cycle in a guest, with a table and a plot'
	@echo '  make check     every test; the last line says how many passed'
	@echo
	@echo '  make module    the driver as a module of Debian'"'"'s cloud kernels, 6.12 and 6.1'
	@echo '  make guest     out/guest/bzImage: a guest kernel with the rework'
	@echo '  make debug     out/debug/bzImage: the same with KASAN, lockdep and more'
	@echo '  make stock     out/stock/bzImage: the same without the rework'
	@echo '  make selftest  the scenarios on all lanes: $(LANES)'
	@echo '  make kunit     the unit tests, in a guest (KUNIT_KERNEL=debug: on that kernel)'
	@echo '  make lint      static checks'
	@echo '  make series    the patch series, in out/series'
	@echo '  make boot [KERNEL=FILE [MODULE=FILE]] [MEM=MIB] [TARGET=MIB]'
	@echo '                 a guest to play with; Debian'"'"'s 6.12 if not said otherwise'
	@echo '  make clean     removes what is built, keeps kernels and downloads'
	@echo '  make distclean removes out/'
	@echo
	@echo 'V=1 shows what is run. LANE=NAME and SCENARIO="NAME ..." restrict selftest.'

# ---- packages, kernels of Debian ------------------------------------------

.PHONY: install-demo install-check
install-demo:
	$(Q)harness/install $(DEMO_PACKAGES)
install-check:
	$(Q)harness/install $(CHECK_PACKAGES)

# Quick when nothing is new; the files change only when the release does.
out/kernel/6.12: install-demo
	$(Q)harness/debian-kernel linux-headers-6.12-cloud-amd64 6.12
out/kernel/6.1: install-check
	$(Q)harness/debian-kernel linux-headers-cloud-amd64 6.1

# ---- module lane ----------------------------------------------------------

out/module/%.stamp: out/kernel/% $(DRIVER)
	$(Q)mkdir -p out/module
	$(Q)harness/module $*
	$(Q)touch $@

.PHONY: module
module: out/module/6.12.stamp out/module/6.1.stamp
	@ls out/module/*/virtio_balloon.ko

# ---- tree lane ------------------------------------------------------------

.PHONY: source overlay guest debug stock
source: install-check
	$(Q)harness/source
overlay: source
	$(Q)harness/overlay

# kbuild decides what is to be done: nothing, if nothing has changed.
CONFIG_stock := harness/config/guest.config
CONFIG_guest := $(CONFIG_stock)+harness/config/kunit.config
CONFIG_debug := $(CONFIG_guest)+harness/config/debug.config
guest debug: overlay
	$(Q)harness/quiet out/log/$@.log "building the $@ kernel" \
		harness/kbuild out/tree out/build/$@ $(CONFIG_$@) bzImage
	$(Q)mkdir -p out/$@ && cp -u out/build/$@/arch/x86/boot/bzImage out/$@/
stock: source
	$(Q)harness/quiet out/log/$@.log "building the $@ kernel" \
		harness/kbuild out/src/linux-source-6.12 out/build/$@ \
		$(CONFIG_$@) bzImage
	$(Q)mkdir -p out/$@ && cp -u out/build/$@/arch/x86/boot/bzImage out/$@/

# ---- test programs --------------------------------------------------------

TEST_CFLAGS := -O2 -Wall -Wextra -Werror -D_GNU_SOURCE
out/selftest/balloon_guest: $(SELFTEST)/balloon_guest.c | install-demo
	$(Q)mkdir -p $(@D)
	$(Q)gcc $(TEST_CFLAGS) -static -o $@ $<
out/selftest/balloon_program: $(SELFTEST)/balloon_program.c | install-demo
	$(Q)mkdir -p $(@D)
	$(Q)gcc $(TEST_CFLAGS) -static -o $@ $<
out/selftest/balloon_host: out/selftest/balloon_program $(wildcard $(SELFTEST)/host_*.c) \
		$(SELFTEST)/balloon_host.h | install-demo
	$(Q)mkdir -p $(@D)
	$(Q)gcc $(TEST_CFLAGS) -o $@ $(filter %.c,$^) $$(pkg-config --cflags --libs jansson)

INITRAMFS := out/selftest/balloon_guest $(SELFTEST)/mkinitramfs.sh harness/initramfs
out/initramfs/module-%.cpio: out/module/%.stamp $(INITRAMFS)
	$(Q)harness/initramfs module-$*
out/initramfs/tree.cpio: $(INITRAMFS)
	$(Q)harness/initramfs tree

# ---- demo and a guest to play with ----------------------------------------

.PHONY: demo boot
demo: out/initramfs/module-6.12.cpio out/selftest/balloon_host
	$(Q)mkdir -p out/report
	$(Q)out/selftest/balloon_host \
		--kernel out/kernel/$$(cat out/kernel/6.12)/vmlinuz \
		--initrd $< --csv out/report/demo.csv \
		--table out/report/demo.txt demo
	$(Q)cd out/report && gnuplot ../../harness/demo.gp
	@echo 'the plot: out/report/demo.svg, out/report/demo.png'

# Without KERNEL: Debian's 6.12 with the module.
ifeq ($(KERNEL),)
BOOT_KERNEL = out/kernel/$$(cat out/kernel/6.12)/vmlinuz
BOOT_INITRD := out/initramfs/module-6.12.cpio
boot: $(BOOT_INITRD)
else
BOOT_KERNEL = '$(KERNEL)'
BOOT_INITRD := out/initramfs/boot.cpio
endif
boot: out/selftest/balloon_host | out/selftest/balloon_guest
	$(if $(KERNEL),$(Q)mkdir -p out/initramfs && \
		$(SELFTEST)/mkinitramfs.sh --init out/selftest/balloon_guest -o $(BOOT_INITRD) \
		$(if $(MODULE),--balloon '$(MODULE)'))
	$(Q)out/selftest/balloon_host --kernel $(BOOT_KERNEL) \
		--initrd $(BOOT_INITRD) $(if $(MEM),--mem $(MEM)) \
		$(if $(TARGET),--target $(TARGET)) boot

# ---- tests ----------------------------------------------------------------

.PHONY: selftest kunit lint check series prepare
prepare: install-check guest $(LANES:%=out/initramfs/%.cpio) out/selftest/balloon_host

selftest: prepare
	$(Q)harness/selftest $(or $(LANE),$(LANES))

kunit: install-check guest out/initramfs/tree.cpio out/selftest/balloon_host
	$(Q)harness/kunit out/$(or $(KUNIT_KERNEL),guest)/bzImage

lint: install-check overlay
	$(Q)harness/lint

series: install-check source
	$(Q)harness/series

# The builds are checks as well, so they are no prerequisites.
check: install-check
	$(Q)MAKE='$(MAKE)' harness/check $(LANES)

.PHONY: clean distclean
clean:
	$(Q)rm -rf out/build out/guest out/debug out/stock out/module out/initramfs \
		out/selftest out/report out/series out/log out/tree out/tree.stamp
distclean:
	$(Q)rm -rf out
