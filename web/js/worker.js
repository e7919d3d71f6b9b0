// The Worker: everything that takes time runs here.

import { serve } from "./server.js";

serve(self);
