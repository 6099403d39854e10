// The header: which capture, how complete it is, what the server is doing.
import { byId } from "./elements";
import type { Scene } from "./types";

export function showHeader(scene: Scene): void {
  const { capture, completeness, notes, left_out } = scene;
  const name = capture.split("/").filter(Boolean).pop() ?? capture;
  document.title = `${name} – ncclscope timeline`;
  const captureBox = byId("capture");
  captureBox.textContent = name;
  captureBox.title = capture;
  const important = notes.find((note) => /simulation|totals only/.test(note));
  const completeBox = byId("complete");
  completeBox.textContent = [left_out, important, completeness].filter(Boolean).join(" · ");
  completeBox.title = [left_out, completeness, ...notes, "Traffic outside NCCL is not seen."]
    .filter(Boolean)
    .join("\n");
  completeBox.classList.toggle(
    "incomplete",
    /(missing|lost|[1-9]\d* events? dropped|killed|of [\d,]+ calls)/.test(completeness) || !!left_out,
  );
}

/** Shows what the server is doing, else whether the page follows a running job. */
export function showProgress(progress: string, follow: boolean): void {
  byId("progress").textContent = progress ? `${progress} …` : follow ? "following" : "";
}

export function showTrouble(text: string): void {
  const box = byId("trouble");
  box.textContent = text;
  box.hidden = !text;
}
