
case $slot:${1:-} in
postinst:configure) set_up ;;
postinst:abort-*) [ -x "$root/venv/bin/yrnode" ] || set_up ;;
prerm:remove) stop ;;
postrm:remove)
    gone
    name_what_stays /etc/yrnode /var/lib/yrnode /var/log/yrnode
    ;;
postrm:purge)
    # Never etcd's data and the cluster file. Records of what runs stay as long as somebody has use for them.
    rm -rf /var/log/yrnode
    [ -n "$(find /run/yrnode -name '*.json' 2>/dev/null)" ] || rm -rf /run/yrnode
    name_what_stays /etc/yrnode /etc/systemd/system/yrnode.service.d /run/yrnode /var/lib/yrnode
    ;;
esac
