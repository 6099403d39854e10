// The page is put together and started here.
import { Controls } from "./controls";
import { Focus } from "./focus";
import { Frames } from "./render_loop";
import { showTrouble } from "./header";
import { Hover } from "./hover";
import { Keys } from "./keys";
import { listenToMouse } from "./mouse";
import { openSource } from "./open";
import { Page } from "./page";
import { Probe } from "./test_hooks";
import { Scenes } from "./scenes";

const LOOK_EVERY_MS = 1000;

async function start(): Promise<void> {
  const page: Page = new Page(await openSource(), (error) => scenes.failed(error));
  const focus = new Focus(page);
  const controls = new Controls(page, focus);
  const scenes = new Scenes(page, focus, () => controls.refill());
  Object.assign(window, { timeline: new Probe(page, focus) });
  await scenes.start();
  const keys = new Keys(page, focus, controls);
  listenToMouse(page, focus, new Hover(page));
  new Frames(
    page,
    () => keys.glide(),
    () => scenes.remember(),
  ).start();
  window.setInterval(() => void scenes.look(), LOOK_EVERY_MS);
}

start().catch((error: Error) => showTrouble(error.message));
