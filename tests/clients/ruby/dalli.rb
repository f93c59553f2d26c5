# Performs the operations of the client matrix with Dalli.
#
# Usage: dalli.rb CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
# tests/clients/README.md describes the arguments, the operations and the lines that are printed.

require "dalli"
require "logger"
require "openssl"

USER = "matrix"
PASSWORD = "password-of-the-matrix"
# A server that is well may be silent for seconds where the host takes its core away.
LIMIT_S = 60
# Values without Ruby's own serialization, so that they can be extended and counted.
RAW = { raw: true }.freeze

Dalli.logger = Logger.new($stderr, level: Logger::WARN)

class Unsupported < StandardError; end

def connect(protocol, security, ca, address)
  options = { socket_timeout: LIMIT_S, socket_max_failures: 1000, down_retry_delay: 0 }
  options[:protocol] = :meta if protocol == "meta"
  options.update(username: USER, password: PASSWORD) if security == "sasl"
  if security == "tls"
    options[:ssl_context] = OpenSSL::SSL::SSLContext.new.tap do |tls|
      tls.set_params(verify_mode: OpenSSL::SSL::VERIFY_PEER, ca_file: ca)
    end
  end
  Dalli::Client.new(address, options)
end

# Dalli returns the token of what it stored.
def stored(result)
  result ? true : false
end

def compare_and_swap(client, key, value, meanwhile)
  found, token = client.get_cas(key)
  return nil if found.nil? || token.nil? || token.zero?

  client.set(key, "other", 0, RAW) if meanwhile == "set"
  client.delete(key) if meanwhile == "delete"
  stored(client.set_cas(key, value, token, 0, RAW))
end

def set_many(client, pairs)
  client.quiet_or_multi { pairs.each { |key, value| client.set(key, value, 0, RAW) } }
  true
end

module Quiet
  # Newer versions of Dalli call it `quiet`.
  def quiet_or_multi(&block)
    respond_to?(:quiet) ? quiet(&block) : multi(&block)
  end
end

def perform(client, operation, given)
  key, value, ttl = given
  case operation
  when "get" then client.get(key)
  when "gat" then client.gat(key, value)
  when "set", "add", "replace" then stored(client.public_send(operation, key, value, ttl, RAW))
  when "append", "prepend" then stored(client.public_send(operation, key, value))
  when "quiet_set" then set_many(client, [[key, value]])
  when "quiet_delete"
    client.quiet_or_multi { client.delete(key) }
    true
  when "set_number" then stored(client.set(key, value, ttl))
  when "cas" then compare_and_swap(client, *given)
  when "incr", "decr" then client.public_send(operation, key, value)
  when "incr_initial" then client.incr(key, value, 0, ttl)
  when "decr_initial" then client.decr(key, value, 0, ttl)
  when "delete" then stored(client.delete(key))
  when "touch" then stored(client.touch(key, value))
  when "mget" then client.get_multi(*given)
  when "mset" then set_many(client, given.each_slice(2))
  when "flush_all" then client.flush.all?
  when "version" then client.version.values.first
  when "stats" then client.stats(*(key == "-" ? [] : [key])).values.first.keys
  when "quit" then client.close.nil?
  else raise Unsupported
  end
end

# How to read the arguments: bytes in hex, integers, words. The last letter holds for all further arguments.
KINDS = {
  "set" => "bbi", "add" => "bbi", "replace" => "bbi", "quiet_set" => "bbi", "touch" => "bi", "gat" => "bi",
  "incr" => "bi", "decr" => "bi", "set_number" => "bii", "cas" => "bbw", "incr_initial" => "bii",
  "decr_initial" => "bii", "stats" => "w"
}.freeze

def read(kind, text)
  case kind
  when "b" then [text].pack("H*")
  when "i" then Integer(text)
  else text
  end
end

def hex(value)
  value.to_s.unpack1("H*")
end

def shown(operation, given, found)
  if operation == "stats"
    missing = given.drop(1) - found
    return missing.empty? ? "yes" : "lacks #{missing.join(' ')}"
  end
  case found
  when nil then "miss"
  when true then "yes"
  when false then "no"
  when Integer then "number #{found}"
  when Hash
    found = found.transform_keys(&:b)
    keys = given.uniq.select { |key| found.key?(key) }
    ["values", *keys.map { |key| "#{hex(key)}=#{hex(found[key])}" }].join(" ")
  else "value #{hex(found)}"
  end
end

_name, protocol, security, ca, operations, *addresses = ARGV
clients = addresses.map { |address| connect(protocol, security, ca, address).extend(Quiet) }
$stdout.sync = true
File.foreach(operations, chomp: true).with_index do |line, number|
  operation, *texts = line.split("\t", -1)
  next sleep(texts[0].to_f / 1000) if operation == "sleep"

  kinds = KINDS.fetch(operation, "b")
  given = texts.each_with_index.map { |text, at| read(kinds[[at, kinds.size - 1].min], text) }
  clients.each_with_index do |client, server|
    result = begin
      shown(operation, given, perform(client, operation, given))
    rescue Unsupported
      "unsupported"
    rescue StandardError => error
      "error #{error.class}: #{error.message.tr("\n", ' ')}"
    end
    puts "#{number} #{server} #{result}"
  end
end
