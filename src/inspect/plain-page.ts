/** The list of runs as a page without scripts: what is shown where the page itself was not built. */

import type { RunLine } from "./page/wire.js";

export function plainPage(lines: readonly RunLine[]): string {
  const rows = lines.map(({ name, state, step, of, device, note }) => {
    const progress = step === null ? "" : of === null ? `${step}` : `${step} of ${of}`;
    const cells = [name, state, progress, device ?? "", note ?? ""];
    return `<tr>${cells.map((cell) => `<td>${escapeHtml(cell)}</td>`).join("")}</tr>`;
  });
  return `<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>Holdfast inspector</title>
<h1>Runs</h1>
<p>The inspector's page was not built; <code>npm run build</code> makes it. These are the runs; <code>holdfast inspect --text</code> shows one in a terminal.</p>
<table>
<tr><th>run</th><th>state</th><th>step</th><th>device</th><th>note</th></tr>
${rows.join("\n")}
</table>
</html>
`;
}

function escapeHtml(text: string): string {
  return text.replaceAll(/[&<>"']/g, (sign) => `&#${sign.codePointAt(0)};`);
}
