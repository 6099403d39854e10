// Where this page's data is: in the page itself, or on the server that it came from.
import { EmbeddedSource, unpacked } from "./embedded";
import { HttpSource } from "./source";
import type { Source } from "./types";

export async function openSource(): Promise<Source> {
  const packed = document.getElementById("data")?.textContent;
  return packed ? new EmbeddedSource(await unpacked(packed)) : new HttpSource();
}
