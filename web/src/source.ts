// The server as a source of data.
import { decodeTile } from "./tiles";
import type { Filter, Found, Glance, Item, Jumps, Marks, Runs, Scene, Source, Span, State } from "./types";

/** The picture has changed on the server: its scene must be asked for again. */
export class Changed extends Error {}

/** 3,4,5,9 -> "3-5,9" */
export function ranges(rows: number[]): string {
  const pieces: string[] = [];
  for (let at = 0; at < rows.length; ) {
    let end = at;
    while (end + 1 < rows.length && rows[end + 1] === rows[end] + 1) end++;
    pieces.push(end > at ? `${rows[at]}-${rows[end]}` : `${rows[at]}`);
    at = end + 1;
  }
  return pieces.join(",");
}

export class HttpSource implements Source {
  private generation = 0;

  private async get(
    path: string,
    query: Record<string, string | number> = {},
    filter: Filter = {},
  ): Promise<Response> {
    const given = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) given.set(name, String(value));
    if (path !== "state" && path !== "scene") given.set("g", String(this.generation));
    if (filter.functions) given.set("functions", filter.functions.join(","));
    if (filter.sources) given.set("sources", filter.sources.join(","));
    if (filter.leastBytes !== undefined) given.set("least", String(filter.leastBytes));
    if (filter.mostBytes !== undefined) given.set("most", String(filter.mostBytes));
    const answer = await fetch(`api/${path}?${given}`);
    if (answer.status === 409) throw new Changed("the picture has changed");
    if (!answer.ok) {
      const told = (await answer.json().catch(() => ({}))) as { error?: string };
      throw new Error(told.error ?? `the server answered ${answer.status}`);
    }
    return answer;
  }

  private async json<T>(
    path: string,
    query: Record<string, string | number> = {},
    filter: Filter = {},
  ): Promise<T> {
    return (await (await this.get(path, query, filter)).json()) as T;
  }

  state(): Promise<State> {
    return this.json("state");
  }

  async scene(): Promise<Scene> {
    const scene = await this.json<Scene>("scene");
    this.generation = scene.generation;
    return scene;
  }

  async tile(zoom: number, place: number, rows: number[], filter: Filter): Promise<Runs[]> {
    const answer = await this.get("tile", { z: zoom, i: place, rows: ranges(rows) }, filter);
    return decodeTile(await answer.arrayBuffer());
  }

  async line(zoom: number, place: number, rows: number[]): Promise<Float32Array> {
    return new Float32Array(
      await (await this.get("line", { z: zoom, i: place, rows: ranges(rows) })).arrayBuffer(),
    );
  }

  item(row: number, item: number, filter: Filter): Promise<Item> {
    return this.json("item", { row, item }, filter);
  }

  marks(rows: number[], first: number, last: number): Promise<Marks> {
    return this.json("marks", { rows: ranges(rows), t0: Math.floor(first), t1: Math.ceil(last) });
  }

  span(rows: number[], first: number, last: number, filter: Filter): Promise<Span> {
    return this.json("span", { rows: ranges(rows), t0: Math.floor(first), t1: Math.ceil(last) }, filter);
  }

  find(text: string): Promise<{ count: number; found: Found[] }> {
    return this.json("find", { q: text.slice(0, 200) });
  }

  jumps(): Promise<Jumps> {
    return this.json("jumps");
  }

  glance(width: number): Promise<Glance> {
    return this.json("glance", { w: width });
  }
}
