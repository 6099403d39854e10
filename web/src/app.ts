// Puts the page together and starts it.
import { Controls } from "./controls";
import { Focus } from "./focus";
import { showTrouble } from "./header";
import { Keys } from "./keys";
import { listenToMouse } from "./mouse";
import { Page } from "./page";
import { RenderLoop } from "./render_loop";
import { SceneLoader } from "./scenes";
import { openSource } from "./source";
import { TestHooks } from "./test_hooks";
import { Tooltip } from "./tooltip";

const CHECK_EVERY_MS = 1000;

async function start(): Promise<void> {
  const page: Page = new Page(await openSource(), (error) => scenes.onError(error));
  const focus = new Focus(page);
  const controls = new Controls(page, focus);
  const scenes = new SceneLoader(page, focus, () => controls.fillMenu());
  Object.assign(window, { timeline: new TestHooks(page, focus) });
  await scenes.start();
  const keys = new Keys(page, focus, controls);
  listenToMouse(page, focus, new Tooltip(page));
  const loop = new RenderLoop(
    page,
    () => keys.moveByHeldKeys(),
    () => scenes.writeAddress(),
  );
  loop.start();
  window.setInterval(() => void scenes.check(), CHECK_EVERY_MS);
}

start().catch((error: Error) => showTrouble(error.message));
