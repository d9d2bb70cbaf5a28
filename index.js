'use strict';
const { RestanteError } = require('./lib/errors');
const { Factory } = require('./lib/factory');
const { Publisher } = require('./lib/publisher');
const { Server } = require('./lib/server');
const { Subscriber } = require('./lib/subscriber');

exports.Server = Server;
exports.Factory = Factory;
exports.MessageQueue = Factory;
exports.Publisher = Publisher;
exports.Subscriber = Subscriber;
exports.Storage = require('./lib/storage').Storage;
exports.Settings = require('./lib/settings').Settings;
exports.Authorization = require('./lib/authorization').Authorization;
exports.RestanteError = RestanteError;
exports.events = require('./lib/events');
exports.constants = require('./lib/constants');
