// The copy button of an example with prompts takes its commands, without prompts and outputs.
document.addEventListener("click", (event) => {
  const button = event.target.closest("[data-md-type=copy]");
  const lines = button?.closest("pre")?.querySelector("code")?.textContent.split("\n") ?? [];
  const commands = lines.filter((line) => /^[$>] /.test(line)).map((line) => line.slice(2));
  if (!lines[0]?.startsWith("$ ")) return;
  navigator.clipboard.writeText(commands.join("\n") + "\n");
  event.stopImmediatePropagation();
}, true);
