// Quiet colours: one for each function, greys for what surrounds it.

export interface Theme {
  dark: boolean;
  paper: string;
  panel: string;
  stripe: string;
  line: string;
  text: string;
  faint: string;
  accent: string;
  parent: string;
  instance: string;
  warn: string;
  dead: string;
  bars: (code: number) => string;
  onBar: (code: number) => string;
}

// Hue, saturation, lightness by code, as web/palette.py numbers them.
const FUNCTIONS: [number, number, number][] = [
  [212, 52, 56], // AllReduce
  [160, 38, 46], // AllGather
  [184, 44, 42], // ReduceScatter
  [268, 36, 60], // Broadcast
  [292, 30, 56], // Reduce
  [28, 62, 56], // Send
  [44, 58, 50], // Recv
  [338, 44, 58], // AlltoAll
  [6, 46, 58], // Gather
  [18, 44, 54], // Scatter
  [36, 56, 52], // SendRecv
  [220, 8, 56], // other
];
export const OTHER_FUNCTION = FUNCTIONS.length - 1; // codes above are kinds of events
const KINDS: Record<number, [number, number, number]> = {
  33: [214, 16, 62], // Group
  36: [28, 40, 60], // ProxyOp
  38: [352, 34, 62], // ProxyCtrl
  39: [200, 30, 58], // KernelCh
  40: [48, 30, 56], // NetPlugin
  41: [130, 28, 58], // GroupApi
  44: [46, 66, 58], // KernelLaunch
  46: [250, 24, 62], // CeSync
  47: [262, 24, 58], // CeBatch
  48: [190, 30, 52], // KernelPhase
  64: [28, 56, 60], // send
  65: [204, 40, 60], // receive
  66: [220, 8, 74], // idle
  67: [140, 26, 58], // active
  68: [352, 30, 74], // asleep
  69: [38, 48, 60], // appends
  70: [140, 40, 42], // init
  71: [220, 20, 42], // finalize
  72: [0, 70, 54], // dropped
  73: [0, 0, 60], // gone
  74: [220, 8, 70], // not indexed
};

function shade(code: number, dark: boolean): [number, number, number] {
  const [hue, saturation, lightness] = FUNCTIONS[code] ?? KINDS[code] ?? [220, 10, 60];
  return [hue, saturation, dark ? Math.min(lightness, 62) - 4 : lightness];
}

function theme(dark: boolean, given: Omit<Theme, "dark" | "bars" | "onBar">): Theme {
  const bars: string[] = [];
  const texts: string[] = [];
  for (let code = 0; code < 256; code++) {
    const [hue, saturation, lightness] = shade(code, dark);
    bars.push(`hsl(${hue} ${saturation}% ${lightness}%)`);
    texts.push(lightness > 63 && !dark ? "#1c2430" : "#ffffff");
  }
  return { dark, ...given, bars: (code) => bars[code], onBar: (code) => texts[code] };
}

export const LIGHT = theme(false, {
  paper: "#ffffff",
  panel: "#f6f7f9",
  stripe: "#fafbfc",
  line: "#e6e9ee",
  text: "#1f2733",
  faint: "#7b8595",
  accent: "#2f6fd0",
  parent: "#3b78e0",
  instance: "#d2453f",
  warn: "#b4571c",
  dead: "rgba(160, 60, 50, 0.10)",
});

export const DARK = theme(true, {
  paper: "#14181f",
  panel: "#1a1f28",
  stripe: "#171c24",
  line: "#2a313d",
  text: "#dfe5ee",
  faint: "#8590a2",
  accent: "#6aa3ff",
  parent: "#6fa6ff",
  instance: "#f0706a",
  warn: "#e0975a",
  dead: "rgba(230, 110, 100, 0.13)",
});
