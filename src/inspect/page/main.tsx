/** Renders the page into its document. */

import { render } from "preact";
import { App } from "./app.js";

const place = document.getElementById("page");
if (place) {
  place.textContent = "";
  render(<App />, place);
}
