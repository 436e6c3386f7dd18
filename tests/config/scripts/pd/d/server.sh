# <IP_ADDRESS> D 主节点

python launch_online_dp.py --dp-size 8 --tp-size 4 --dp-size-local 2 --dp-rank-start 0 --dp-address 10.0.0.5 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> D 从节点

python launch_online_dp.py --dp-size 8 --tp-size 4 --dp-size-local 2 --dp-rank-start 2 --dp-address 10.0.0.5 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> D 从节点

python launch_online_dp.py --dp-size 8 --tp-size 4 --dp-size-local 2 --dp-rank-start 4 --dp-address 10.0.0.5 --dp-rpc-port 10521 --vllm-start-port 6600

# <IP_ADDRESS> D 从节点

python launch_online_dp.py --dp-size 8 --tp-size 4 --dp-size-local 2 --dp-rank-start 6 --dp-address 10.0.0.5 --dp-rpc-port 10521 --vllm-start-port 6600
