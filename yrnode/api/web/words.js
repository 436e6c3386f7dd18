const ZH = {
  "ready": "就绪", "not ready": "未就绪", "starting": "启动中", "stopped": "已停止", "cleaning": "清理中", "unhealthy": "不健康",
  "stopping": "停止中", "backoff": "退避等待", "failed": "已放弃", "held": "保持停止", "unknown": "未知",
  "ok": "正常", "fail": "失败", "skip": "跳过",
  "store": "存储", "cache": "缓存", "engine": "引擎", "router": "路由",
  "Nodes": "节点", "Planes": "层", "Groups": "组", "Components": "组件", "Cache hit rates": "缓存命中率", "Events": "事件",
  "Router": "路由", "Checks of the node": "节点检查", "live": "实时", "connection lost, trying again": "连接已断开，正在重连",
  "connecting": "连接中", "Skip to content": "跳到正文", "for": "已持续", "restarts": "重启", "generation": "世代",
  "stage": "阶段", "go": "运行", "stop": "停止", "waits for": "等待", "cause": "原因", "last failure": "上次故障",
  "this node": "本节点", "up": "在线", "absent": "缺席", "fenced": "已隔离", "differs": "不一致",
  "clock": "时钟偏差", "store answers": "存储应答正常", "store unavailable": "存储不可用", "store refuses writes": "存储拒绝写入",
  "cannot be decided now": "目前无法决策", "operator": "操作员", "paused": "已暂停", "draining": "排空中",
  "unfinished requests": "未完成的请求", "shutting down": "正在退出", "local": "本地", "external": "外部", "effective": "合计",
  "in the last minute": "最近一分钟", "nothing asked": "无请求", "in": "在内", "out": "在外", "leaving": "退出中",
  "checks": "检查", "checks fail": "失败的检查", "ago": "前", "up for": "已运行", "minutes": "分钟", "now": "现在", "available": "可用", "unavailable": "不可用", "none yet": "暂无", "not yet": "尚未进行",
  "no data": "无数据", "usually": "通常", "late": "远超通常用时", "wanted": "应运行", "not wanted": "不应运行", "kept stopped": "由操作员保持停止", "pause": "暂停", "bump": "换代", "start": "启动",
  "clean": "清理", "recover": "恢复", "rest": "静止", "wait": "等待", "give-up": "放弃", "lost": "丢失",
  "check-failed": "检查失败", "check-passed": "检查恢复", "not-ready": "未就绪", "drill": "演练", "adopted": "已接管", "forgive": "故障清零",
  "learn": "获知", "put-back": "写回", "tell": "告知", "refuses-writes": "拒绝写入", "replaced": "被替换", "held-up": "受阻",
  "operator-drain": "操作员排空", "operator-clean": "操作员清理残留", "left-router": "已离开路由", "detached": "已脱离", "record": "记录", "clean-up": "清理",
  "operator-start": "操作员启动", "operator-stop": "操作员停止", "operator-restart": "操作员重启", "operator-pause": "操作员暂停",
  "operator-resume": "操作员恢复", "operator-fence": "操作员隔离", "unfence": "解除隔离", "heed": "接受指令", "say": "发布指令", "refused": "已拒绝",
  "drained": "排空完成", "drain-timeout": "排空超时", "closing": "开始退出", "round-failed": "决策轮出错", "protocol": "协议版本",
  "takes-writes": "恢复写入", "member-in": "加入路由", "member-out": "移出路由", "member-start": "成员启动", "member-new": "新建集群",
  "member-join": "成员加入", "member-aside": "数据移开", "member-remove": "移除成员", "member-add": "添加成员", "member-wait": "成员等待",
  "hits": "命中", "cold": "尚无内容", "no-hits": "无命中", "connector-off": "未查询外部缓存", "worker-away": "缓存进程不在",
  "not-configured": "未配置", "idle": "空闲", "no-data": "无数据",
};
const UNITS = {en: [" d", " h", " min", " s"], zh: ["天", "小时", "分", "秒"]};
let lang = "en";

function t(word) {
  return lang === "zh" ? ZH[word] ?? word : word;
}

/* "3 min 20 s": the two largest units. */
function span(seconds) {
  const s = Math.max(0, Math.floor(seconds));
  const parts = [Math.floor(s / 86400), Math.floor(s / 3600) % 24, Math.floor(s / 60) % 60, s % 60];
  const first = parts.findIndex((n) => n > 0);
  if (first < 0) return "0" + UNITS[lang][3];
  const shown = parts.slice(first, first + 2).map((n, i) => [n, UNITS[lang][first + i]]).filter(([n]) => n > 0);
  return shown.map(([n, unit]) => n + unit).join(" ");
}
