unset http_proxy
unset https_proxy
python load_balance_proxy_server_example.py \
    --port 8000 \
    --host 10.0.0.1 \
    --prefiller-hosts \
        10.0.0.1 \
        10.0.0.2 \
        10.0.0.3 \
        10.0.0.4 \
    --prefiller-ports \
        6600 \
        6600 \
        6600 \
        6600 \
    --decoder-hosts \
        10.0.0.5 \
        10.0.0.5 \
        10.0.0.6 \
        10.0.0.6 \
        10.0.0.7 \
        10.0.0.7 \
        10.0.0.8 \
        10.0.0.8 \
    --decoder-ports \
        6600 6601 \
        6600 6601 \
        6600 6601 \
        6600 6601
