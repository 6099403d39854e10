// The server as a source of data, and which source this page has.
import { decompress, EmbeddedSource } from "./embedded";
import { LONGEST_SEARCH, type Runs } from "./generated";
import { decodeTile } from "./tiles";
import type {
  Highlights,
  Item,
  Marks,
  OperationFilter,
  Overview,
  Scene,
  SearchResult,
  Source,
  SpanStatistics,
  State,
} from "./types";

/** The server has another scene: the page must ask for it again. */
export class SceneChanged extends Error {}

/** The page's own data where it has some, else the server that it came from. */
export async function openSource(): Promise<Source> {
  const data = document.getElementById("data")?.textContent;
  return data ? new EmbeddedSource(await decompress(data)) : new HttpSource();
}

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

type Query = Record<string, string | number>;

export class HttpSource implements Source {
  private generation = 0;

  private async get(path: string, query: Query = {}, filter: OperationFilter = {}): Promise<Response> {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) parameters.set(name, String(value));
    if (path !== "state" && path !== "scene") parameters.set("g", String(this.generation));
    if (filter.functions) parameters.set("functions", filter.functions.join(","));
    if (filter.sources) parameters.set("sources", filter.sources.join(","));
    if (filter.leastBytes !== undefined) parameters.set("least", String(filter.leastBytes));
    if (filter.mostBytes !== undefined) parameters.set("most", String(filter.mostBytes));
    const response = await fetch(`api/${path}?${parameters}`);
    if (response.status === 409) throw new SceneChanged("the picture has changed");
    if (!response.ok) {
      const body = (await response.json().catch(() => ({}))) as { error?: string };
      throw new Error(body.error ?? `the server answered ${response.status}`);
    }
    return response;
  }

  private async json<T>(path: string, query: Query = {}, filter: OperationFilter = {}): Promise<T> {
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

  async tile(zoom: number, place: number, rows: number[], filter: OperationFilter): Promise<Runs[]> {
    const response = await this.get("tile", { z: zoom, i: place, rows: ranges(rows) }, filter);
    return decodeTile(await response.arrayBuffer());
  }

  async line(zoom: number, place: number, rows: number[]): Promise<Float32Array> {
    const response = await this.get("line", { z: zoom, i: place, rows: ranges(rows) });
    return new Float32Array(await response.arrayBuffer());
  }

  item(row: number, item: number, filter: OperationFilter): Promise<Item> {
    return this.json("item", { row, item }, filter);
  }

  marks(rows: number[], first: number, last: number): Promise<Marks> {
    return this.json("marks", { rows: ranges(rows), t0: Math.floor(first), t1: Math.ceil(last) });
  }

  span(rows: number[], first: number, last: number, filter: OperationFilter): Promise<SpanStatistics> {
    const query = { rows: ranges(rows), t0: Math.floor(first), t1: Math.ceil(last) };
    return this.json("span", query, filter);
  }

  find(text: string): Promise<SearchResult> {
    return this.json("find", { q: text.slice(0, LONGEST_SEARCH) });
  }

  highlights(): Promise<Highlights> {
    return this.json("highlights");
  }

  overview(width: number): Promise<Overview> {
    return this.json("overview", { w: width });
  }
}
