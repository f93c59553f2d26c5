# Performs the operations of the client matrix with Cache::Memcached::Fast.
#
# Usage: fast.pl CLIENT PROTOCOL SECURITY CA OPERATIONS HOST:PORT...
# tests/clients/README.md describes the arguments, the operations and the lines that are printed.

use strict;
use warnings;

use Cache::Memcached::Fast;

# A server that is well may be silent for seconds where the host takes its core away.
my $LIMIT_S = 60;

sub connect_to {
    my ($address) = @_;
    return Cache::Memcached::Fast->new({
        servers => [$address],
        connect_timeout => $LIMIT_S,
        io_timeout => $LIMIT_S,
        max_failures => 0,
        max_size => 1 << 30,
        # As the manual recommends for values that are long enough.
        compress_threshold => 10_000,
    });
}

# The client returns undef for an error, and an empty string for a negative answer.
sub yes_or_no {
    my ($result) = @_;
    die "no answer\n" unless defined $result;
    return $result ? 'yes' : 'no';
}

sub value {
    my ($found) = @_;
    return defined $found ? 'value ' . unpack('H*', $found) : 'miss';
}

sub number {
    my ($found) = @_;
    return !defined $found ? 'error no answer' : length $found ? 'number ' . ($found + 0) : 'miss';
}

sub compare_and_swap {
    my ($client, $key, $value, $meanwhile) = @_;
    my $found = $client->gets($key);
    return 'miss' unless defined $found;
    my $done = 1;
    $done = $client->set($key, 'other') if $meanwhile eq 'set';
    $done = $client->delete($key) if $meanwhile eq 'delete';
    return yes_or_no(scalar $client->cas($key, $found->[0], $value));
}

sub get_all {
    my ($client, @keys) = @_;
    my $found = $client->get_multi(@keys);
    my %seen;
    my @there = grep { exists $found->{$_} && !$seen{$_}++ } @keys;
    return join ' ', 'values', map { unpack('H*', $_) . '=' . unpack('H*', $found->{$_}) } @there;
}

sub set_all {
    my ($client, %values) = @_;
    my $results = $client->set_multi(map { [$_, $values{$_}] } keys %values);
    return (grep { !$_ } values %$results) ? 'no' : 'yes';
}

sub delete_all {
    my ($client, @keys) = @_;
    my $results = $client->delete_multi(@keys);
    return (grep { !$_ } values %$results) ? 'no' : 'yes';
}

# In void context the client asks for no answer.
sub quietly {
    my ($client, $method, @given) = @_;
    $client->$method(@given);
    $client->nowait_push;
    return 'yes';
}

my %OPERATIONS = (
    get => sub { value($_[0]->get($_[1])) },
    (map { my $name = $_; $name => sub { my $client = shift; yes_or_no(scalar $client->$name(@_)) } }
        qw(set add replace append prepend delete touch)),
    set_number => sub { yes_or_no(scalar $_[0]->set(@_[1 .. 3])) },
    gat => sub { value($_[0]->gat($_[2], $_[1])) },
    cas => \&compare_and_swap,
    incr => sub { number($_[0]->incr($_[1], $_[2])) },
    decr => sub { number($_[0]->decr($_[1], $_[2])) },
    mget => \&get_all,
    mset => \&set_all,
    mdelete => \&delete_all,
    quiet_set => sub { quietly(shift, 'set', @_) },
    quiet_delete => sub { quietly(shift, 'delete', @_) },
    flush_all => sub { (grep { !$_ } values %{ $_[0]->flush_all }) ? 'no' : 'yes' },
    version => sub { value((values %{ $_[0]->server_versions })[0]) },
    quit => sub { $_[0]->disconnect_all; 'yes' },
);

# How to read the arguments: bytes in hex, and words as they are. The last letter holds for all further arguments.
my %KINDS = (
    set => 'bbw', add => 'bbw', replace => 'bbw', quiet_set => 'bbw', touch => 'bw', gat => 'bw', incr => 'bw',
    decr => 'bw', set_number => 'bww', cas => 'bbw', incr_initial => 'bww', decr_initial => 'bww', stats => 'w',
);

sub arguments {
    my ($kinds, @texts) = @_;
    return map {
        my $kind = substr $kinds, ($_ < length $kinds ? $_ : -1), 1;
        $kind eq 'b' ? pack('H*', $texts[$_]) : $texts[$_];
    } 0 .. $#texts;
}

my ($name, $protocol, $security, $ca, $path, @addresses) = @ARGV;
my @clients = map { connect_to($_) } @addresses;
$| = 1;
open my $lines, '<', $path or die "$path: $!";
while (my $line = <$lines>) {
    chomp $line;
    my ($operation, @texts) = split /\t/, $line, -1;
    if ($operation eq 'sleep') {
        select undef, undef, undef, $texts[0] / 1000;
        next;
    }
    my @given = arguments($KINDS{$operation} // 'b', @texts);
    for my $server (0 .. $#clients) {
        my $call = $OPERATIONS{$operation};
        my $result = $call ? eval { $call->($clients[$server], @given) } : 'unsupported';
        $result = "error $@" unless defined $result;
        $result =~ s/\s+$//;
        print $. - 1, " $server $result\n";
    }
}
