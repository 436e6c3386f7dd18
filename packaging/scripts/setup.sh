
[ "$#" = 0 ] || die "usage: $root/setup (it makes yrnode's environment again, with a Python that fits)"
set_up
