// Elements of the page.

type Child = Node | string;

export function byId<T extends HTMLElement>(id: string): T {
  return document.getElementById(id) as T;
}

export function element(tag: string, className = "", ...children: Child[]): HTMLElement {
  const made = document.createElement(tag);
  if (className) made.className = className;
  made.append(...children);
  return made;
}

export function button(text: string, title: string, act: () => void): HTMLButtonElement {
  const made = element("button", "", text) as HTMLButtonElement;
  made.type = "button";
  made.title = title;
  made.addEventListener("click", act);
  return made;
}

/** Calls `move` until the mouse button is released, then `done`. */
export function whileDragging(move: (event: MouseEvent) => void, done: () => void = () => {}): void {
  const release = () => {
    document.removeEventListener("mousemove", move);
    document.removeEventListener("mouseup", release);
    done();
  };
  document.addEventListener("mousemove", move);
  document.addEventListener("mouseup", release);
}
