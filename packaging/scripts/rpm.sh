
# rpm gives the number of packages of this name that there will be; a script that fails at an upgrade is only told.
case $slot:${1:-} in
post:*) set_up ;;
preun:0) stop ;;
postun:0)
    gone
    name_what_stays /etc/yrnode /var/lib/yrnode /var/log/yrnode
    ;;
esac
