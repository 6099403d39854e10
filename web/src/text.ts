// Texts of numbers and times.

const TIMES: [number, string][] = [
  [1e9, "s"],
  [1e6, "ms"],
  [1e3, "µs"],
  [1, "ns"],
];

export function threeDigits(value: number): string {
  const size = Math.abs(value);
  if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
  return value.toFixed(size >= 9.995 ? 1 : 2).replace(/\.?0+$/, "");
}

/** 1234567 -> "1.23 ms" */
export function duration(ns: number): string {
  if (ns === 0) return "0";
  const [unit, name] = TIMES.find(([unit]) => Math.abs(ns) >= unit * 0.9995) ?? TIMES[3];
  return `${threeDigits(ns / unit)} ${name}`;
}

/** In GB/s, or in a smaller unit for small values. */
export function bandwidth(gbs: number): string {
  if (gbs >= 0.01) return `${threeDigits(gbs)} GB/s`;
  return gbs >= 1e-5 ? `${threeDigits(gbs * 1e3)} MB/s` : `${threeDigits(gbs * 1e6)} KB/s`;
}

/** A time since the start of the scene, with all ns. */
export function moment(ns: number): string {
  return `${(ns / 1e9).toFixed(9).replace(/(\d{3})(\d{3})(\d{3})$/, "$1\u2009$2\u2009$3")} s`;
}

/** A message size as nccl-tests write it, in powers of 1024. */
export function size(bytes: number): string {
  let value = bytes;
  for (const unit of ["", "K", "M", "G", "T"]) {
    if (value < 1023.5 || unit === "T") {
      return `${Number(value.toPrecision(3))}${unit}`;
    }
    value /= 1024;
  }
  return String(bytes);
}

/** The local wall-clock time of ns since 1970. */
export function wallClock(ns: bigint): string {
  const date = new Date(Number(ns / 1000000n));
  const rest = String(ns % 1000000000n).padStart(9, "0");
  const two = (n: number) => String(n).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  const time = `${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
  return `${day} ${time}.${rest}`;
}

/** The distance of the ruler's ticks in ns: 1, 2 or 5 times a power of ten. */
export function tickStep(nsPerPixel: number, pixels = 110): number {
  const least = nsPerPixel * pixels;
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5, 10]) {
    if (power * factor >= least) return Math.max(power * factor, 1);
  }
  return power * 10;
}

/** The label of a tick, with as many digits as the step needs. */
export function tickLabel(ns: number, step: number): string {
  if (ns === 0) return "0";
  const [unit, name] =
    TIMES.find(([unit]) => step >= unit || (unit < 1e9 && ns >= unit && step >= unit / 1e3)) ?? TIMES[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
  const [whole, rest] = (ns / unit).toFixed(digits).split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, ",");
  return `${rest ? `${grouped}.${rest}` : grouped} ${name}`;
}

/** The name of a field without its unit. */
export function fieldName(name: string): string {
  return name.replace(/_(ns|bytes)$/, "").replace(/_/g, " ");
}

/** A text cut to a width; "" where fewer than four letters fit: AllR… could be anything, Al… more so. */
export function fitText(text: string, width: number, measure: (text: string) => number): string {
  if (measure(text) <= width) return text;
  const letters = Math.floor((text.length * width) / measure(text)) - 1;
  return letters >= 4 ? `${text.slice(0, letters)}…` : "";
}
