// The line above the lanes: which capture, how complete it is, what goes on.
import { byId } from "./elements";
import type { Scene } from "./types";

export function showHeader(scene: Scene): void {
  const { capture, complete, notes, thinned } = scene;
  const name = capture.split("/").filter(Boolean).pop() ?? capture;
  document.title = `${name} – ncclscope timeline`;
  const captureBox = byId("capture");
  captureBox.textContent = name;
  captureBox.title = capture;
  const note = notes.find((one) => /simulation|totals only/.test(one));
  const completeBox = byId("complete");
  completeBox.textContent = [thinned, note, complete].filter(Boolean).join(" · ");
  completeBox.title = [thinned, complete, ...notes, "Traffic outside NCCL is not seen."]
    .filter(Boolean)
    .join("\n");
  completeBox.classList.toggle(
    "incomplete",
    /(missing|lost|[1-9]\d* events? dropped|killed|of [\d,]+ calls)/.test(complete) || !!thinned,
  );
}

/** What the server is doing, else whether the page follows a running job. */
export function showProgress(progress: string, follow: boolean): void {
  byId("progress").textContent = progress ? `${progress} …` : follow ? "following" : "";
}

export function showTrouble(text: string): void {
  const box = byId("trouble");
  box.textContent = text;
  box.hidden = !text;
}
