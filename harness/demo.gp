# SPDX-License-Identifier: GPL-2.0
# Draws demo.csv (harness and host_demo.c) as demo.svg and demo.png.
set datafile separator ","
set key outside below center horizontal
set grid
set bmargin 7
set title "One balloon cycle of a 1 GiB guest" font ",14"
set xlabel "time (s)"
set ylabel "memory (MiB)"
set y2label "pages since boot"
set y2tics
set ytics nomirror
set yrange [0:1100]
set y2range [0:*]
set format y2 "%.0f"
draw = 'plot "demo.csv" using 1:2 skip 1 with steps lw 2 dt 2 lc rgb "#444444" title "host''s target", \
	"" using 1:3 skip 1 with lines lw 3 lc rgb "#1f77b4" title "guest has", \
	"" using 1:6 skip 1 with lines lw 1.5 lc rgb "#2ca02c" title "free in guest", \
	"" using 1:4 skip 1 axes x1y2 with lines lw 1.5 lc rgb "#d62728" title "balloon\\_inflate (right)", \
	"" using 1:5 skip 1 axes x1y2 with lines lw 1.5 lc rgb "#ff7f0e" title "balloon\\_deflate (right)"'
set terminal svg size 900,500 font "DejaVu Sans,12" background rgb "white"
set output "demo.svg"
eval draw
set terminal pngcairo size 900,500 font "DejaVu Sans,11"
set output "demo.png"
eval draw
