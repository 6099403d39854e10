// The dialog with keys and looks.
import { button, element } from "./elements";

const KEYS: [string, string][] = [
  ["w  s", "zoom in and out at the mouse"],
  ["a  d", "left and right"],
  ["← →", "the bar before and after the pinned one, else left and right"],
  ["↑ ↓", "up and down the lanes"],
  ["f", "the pinned bar, or the selected span, over the whole width"],
  ["0", "everything"],
  ["click", "pin a bar; its instance and its parent are joined by lines"],
  ["drag", "move; on the ruler, or with Shift: select a span"],
  ["wheel", "up and down; with Ctrl: zoom; with Shift: left and right"],
  ["j", "where to look: findings, slowest, largest skew"],
  [
    "l",
    "lines on and off: dotted blue to the parent, red across ranks; where they would crowd, only those of " +
      "the largest skews and longest bars: zoom in, hover or pin for the others",
  ],
  ["m", "levels and filters"],
  ["[  ]", "fold and unfold everything below the lanes"],
  ["g", "follow a running job"],
  ["t", "light or dark"],
  ["/", "search; what it finds is marked. @1.5s jumps to that time, op:42 to that operation"],
  ["Esc", "clear the pinned bar or the selected span"],
  ["?", "this"],
];
const LOOKS: [string, string][] = [
  ["pale, then full", "waiting for other ranks, then moving data"],
  ["dashed", "no GPU time, only what the host saw; hover says why"],
  ["cut corner", "GPU stamps repaired: NCCL had given them to another operation"],
  ["soft end", "may have lasted longer: stamps are partial or early"],
  ["stripes, red end", "not ended when the capture ended"],
  ["red frame", "ranks disagree on function, bytes or datatype"],
  ["italics, ↻", "function inferred from sends and receives; replay of a CUDA graph"],
  ["red circles", "states of network steps"],
  ["grey background", "the process only counted its calls then"],
  ["reddish background", "after the last sign of the process"],
  ["whisker", "how far the clock can be off"],
];

export function fillHelp(dialog: HTMLDialogElement): void {
  const rows = (pairs: [string, string][]) =>
    pairs.map(([key, what]) =>
      element("tr", "", element("td", "", element("kbd", "", key)), element("td", "", what)),
    );
  dialog.replaceChildren(
    button("×", "close (Esc)", () => dialog.close()),
    element("div", "title", "Keys"),
    element("table", "", ...rows(KEYS)),
    element("div", "title", "How bars look"),
    element("table", "", ...rows(LOOKS)),
  );
}
