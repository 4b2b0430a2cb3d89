/** The whole helper, as a process, with the real Baileys, against a WhatsApp on this machine. */

import './e2e/linking.js'
import './e2e/linked.js'
import './e2e/trouble.js'
