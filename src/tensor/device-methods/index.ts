/** device-methods: the methods of devices that take or return tensors. Importing this file adds them to the class. */

import "./backward.js";
import "./elements.js";
import "./ops.js";
