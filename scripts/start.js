'use strict';
// `npm start`: builds the addon if need be and runs the broker. Arguments go to `restante serve`.
require('./install.js');
process.argv.splice(2, 0, 'serve');
require('../bin/restante.js');
