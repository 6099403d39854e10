// Where this page's data is.
import { HttpSource } from "./source";
import type { Source } from "./types";

export function openSource(): Source {
  return new HttpSource();
}
