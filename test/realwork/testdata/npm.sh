npm init -y >init.log
npm install --no-audit --no-fund is-number
node -e 'const is = require("is-number"); if (!is("7") || is("x")) process.exit(1)'
npm ls
echo works
