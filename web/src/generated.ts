// Made by `python -m tools.page_constants` from src/ncclscope/web. Do not edit.

/** Pixels of a tile. */
export const TILE_WIDTH = 512;

/** What a row shows in a tile, from left to right. */
export interface Runs {
  length: number;
  x0: Float32Array; // first pixel of the tile; of a single bar it may lie outside
  x1: Float32Array; // last pixel, likewise
  item: Uint32Array; // place of the bar in its row; of several bars that of the longest
  count: Uint32Array; // bars of the run
  value: Float32Array; // number of its label: bytes of an operation; negative: none
  code: Uint8Array; // colour code
  look: Uint8Array; // bits of LOOK
  fill: Uint8Array; // share of the run that bars cover, of 255
  wait: Uint8Array; // share of the bars that is waiting, of 255
}

/** Fields of Runs in the order in which a tile is sent. */
export const TILE_FIELDS = [
  ["x0", Float32Array],
  ["x1", Float32Array],
  ["item", Uint32Array],
  ["count", Uint32Array],
  ["value", Float32Array],
  ["code", Uint8Array],
  ["look", Uint8Array],
  ["fill", Uint8Array],
  ["wait", Uint8Array],
] as const;

/** Bits of a bar's look. */
export const LOOK = {
  open: 1,
  untimed: 2,
  repaired: 4,
  inferred: 8,
  replay: 16,
  lowerBound: 32,
  cut: 64,
  mismatch: 128,
} as const;

/** Kinds of rows that the page treats specially. */
export const KIND = {
  operation: "operation",
  part: "part",
  channel: "channel",
  communicator: "Comm",
  preview: "preview",
  counter: "counter",
  bandwidth: "bandwidth",
} as const;

/** Rows that a filter of functions applies to. */
export const KINDS_WITH_FUNCTION: readonly string[] = [
  "operation",
  "part",
  "CollApi",
  "P2pApi",
  "Coll",
  "P2p",
  "CeColl",
];

/** Rows whose states are marked. */
export const KINDS_WITH_STATES: readonly string[] = ["ProxyOp", "ProxyStep", "NetPlugin", "GroupApi", "ProxyCtrl"];

/** Kinds in the order of the menu, with the text of their button. */
export const MENU_KINDS: Record<string, string> = {
  operation: "operations",
  part: "parts",
  bandwidth: "bandwidth",
  Comm: "init/finalize",
  GroupApi: "GroupApi",
  CollApi: "CollApi",
  P2pApi: "P2pApi",
  KernelLaunch: "KernelLaunch",
  Group: "Group",
  Coll: "Coll",
  P2p: "P2p",
  CeColl: "CeColl",
  CeSync: "CeSync",
  CeBatch: "CeBatch",
  ProxyCtrl: "ProxyCtrl",
  channel: "GPU channels",
  KernelCh: "KernelCh",
  KernelPhase: "KernelPhase",
  ProxyOp: "ProxyOp",
  ProxyStep: "ProxyStep",
  NetPlugin: "NetPlugin",
  Drop: "dropped",
  preview: "sampled",
  counter: "machine",
  step: "steps",
  phase: "phases",
  range: "ranges",
  "critical path": "critical path",
};

/** Colour codes up to this one are functions; this one is any other function. */
export const OTHER_FUNCTION = 11;

/** Hue, saturation and lightness by colour code. */
export const COLOURS: Record<number, [number, number, number]> = {
  0: [212, 52, 56],
  1: [160, 38, 46],
  2: [184, 44, 42],
  3: [268, 36, 60],
  4: [292, 30, 56],
  5: [28, 62, 56],
  6: [44, 58, 50],
  7: [338, 44, 58],
  8: [6, 46, 58],
  9: [18, 44, 54],
  10: [36, 56, 52],
  11: [220, 8, 56],
  33: [214, 16, 62],
  34: [220, 10, 60],
  35: [220, 10, 60],
  36: [28, 40, 60],
  37: [220, 10, 60],
  38: [352, 34, 62],
  39: [200, 30, 58],
  40: [48, 30, 56],
  41: [130, 28, 58],
  42: [220, 10, 60],
  43: [220, 10, 60],
  44: [46, 66, 58],
  45: [220, 10, 60],
  46: [250, 24, 62],
  47: [262, 24, 58],
  48: [190, 30, 52],
  64: [28, 56, 60],
  65: [204, 40, 60],
  66: [220, 8, 74],
  67: [140, 26, 58],
  68: [352, 30, 74],
  69: [38, 48, 60],
  70: [140, 40, 42],
  71: [220, 20, 42],
  72: [0, 70, 54],
  73: [0, 0, 60],
  74: [220, 8, 70],
  75: [226, 22, 66],
  76: [196, 18, 64],
  77: [12, 60, 60],
  78: [146, 34, 52],
  79: [214, 46, 58],
  80: [44, 56, 54],
  81: [300, 26, 58],
  82: [174, 30, 50],
  83: [350, 52, 60],
  84: [8, 58, 64],
  85: [46, 66, 58],
  86: [140, 30, 52],
  87: [220, 8, 66],
};

/** Names of colour codes. */
export const COLOUR_NAMES: Record<number, string> = {
  0: "AllReduce",
  1: "AllGather",
  2: "ReduceScatter",
  3: "Broadcast",
  4: "Reduce",
  5: "Send",
  6: "Recv",
  7: "AlltoAll",
  8: "Gather",
  9: "Scatter",
  10: "SendRecv",
  11: "other function",
  33: "Group",
  34: "Coll",
  35: "P2p",
  36: "ProxyOp",
  37: "ProxyStep",
  38: "ProxyCtrl",
  39: "KernelCh",
  40: "NetPlugin",
  41: "GroupApi",
  42: "CollApi",
  43: "P2pApi",
  44: "KernelLaunch",
  45: "CeColl",
  46: "CeSync",
  47: "CeBatch",
  48: "KernelPhase",
  64: "send",
  65: "receive",
  66: "proxy idle",
  67: "proxy active",
  68: "proxy asleep",
  69: "proxy appends",
  70: "init",
  71: "finalize",
  72: "events dropped",
  73: "process gone",
  74: "not indexed yet",
  75: "step",
  76: "range",
  77: "data",
  78: "forward",
  79: "backward",
  80: "optimizer",
  81: "checkpoint",
  82: "evaluation",
  83: "host after sync",
  84: "host",
  85: "launch",
  86: "gpu",
  87: "start-up",
};

/** Sources of times, by code. */
export const SOURCES: readonly string[] = [
  "gpu",
  "gpu-repaired",
  "gpu-event",
  "gpu-partial",
  "gpu-event-rough",
  "gpu-early",
  "gpu-event-upper",
  "proxy",
  "host",
  "enqueue",
  "none",
];

/** By code of a source how good its clock is: less is better. */
export const SOURCE_GRADES: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4];

/** Percentiles of statistics: median and p99. */
export const PERCENTS = [50, 99] as const;

/** With more bars in view, no lines between them are drawn. */
export const MOST_MARKED_BARS = 700;

/** Letters of a search. */
export const LONGEST_SEARCH = 200;

/** Operations that a search lists. */
export const MOST_MATCHES = 500;

/** A term of a search: key and value, or a comparison, or a word. */
export const SEARCH_TERM =
  "(rank|seq|comm|order|op|state|source|peer)[:=](\\S+)|([<>])([0-9]+(?:\\.[0-9]+)?)(\\S*)|(\\S+)";

/** Search keys whose value is a number: field of an operation. */
export const SEARCH_NUMBER_KEYS: Record<string, string> = {
  rank: "global_rank",
  seq: "sequence",
  order: "call_order",
  op: "operation",
  peer: "peer",
};

/** Fields in which a search looks for words. */
export const SEARCH_NAME_FIELDS: readonly string[] = [
  "function",
  "datatype",
  "state",
  "source",
  "algorithm",
  "protocol",
];

export const SEARCH_SIZE_UNITS: Record<string, number> = {
  "": 1,
  b: 1,
  k: 1024,
  kb: 1024,
  m: 1048576,
  mb: 1048576,
  g: 1073741824,
  gb: 1073741824,
};

export const SEARCH_TIME_UNITS_NS: Record<string, number> = {
  ns: 1,
  us: 1000,
  "µs": 1000,
  "μs": 1000,
  ms: 1000000,
  s: 1000000000,
};

/** Operations of this state are neither counted nor found: their replays are. */
export const CAPTURED_STATE = "captured";
