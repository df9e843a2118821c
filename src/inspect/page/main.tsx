/** Renders the page into its document. */

import { render } from "preact";
import { App } from "./app.js";

const container = document.getElementById("page");
if (container) {
  container.textContent = "";
  render(<App />, container);
}
