package egress

import (
	"net/netip"
	"slices"
	"syscall"
)

// refuseLocal is asked with the resolved address right before each connection, so that neither a redirect nor a name
// that resolves anew gets around it (D32).
func refuseLocal(_, address string, _ syscall.RawConn) error {
	port, err := netip.ParseAddrPort(address)
	if err != nil {
		return Refusef("leads to an address that cannot be checked")
	}
	if what := localKind(port.Addr()); what != "" {
		return Refusef("leads to %s, %s: the operator has to allow that", port.Addr(), what)
	}
	return nil
}

// metadataAddresses are those of clouds that are not link-local.
var metadataAddresses = []netip.Addr{
	netip.MustParseAddr("fd00:ec2::254"),   // AWS
	netip.MustParseAddr("168.63.129.16"),   // Azure
	netip.MustParseAddr("100.100.100.200"), // Alibaba Cloud
	netip.MustParseAddr("192.0.0.192"),     // Oracle Cloud
	netip.MustParseAddr("fd20:ce::254"),    // Google Cloud
}

// localKind says what kind of address a URL may not lead to; empty for any other. Private ranges are fine: servers in
// the cluster live there.
func localKind(address netip.Addr) string {
	address = embedded(address.Unmap().WithZone(""))
	switch {
	case address.IsLoopback():
		return "a loopback address"
	case address.IsUnspecified() || zeroNetwork.Contains(address):
		return "an unspecified address"
	case address.IsLinkLocalUnicast():
		return "a link-local address"
	case address.IsMulticast() || address == broadcast:
		return "a multicast address"
	case slices.Contains(metadataAddresses, address):
		return "a metadata address"
	default:
		return ""
	}
}

var (
	zeroNetwork = netip.MustParsePrefix("0.0.0.0/8")
	broadcast   = netip.MustParseAddr("255.255.255.255")
	nat64       = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour   = netip.MustParsePrefix("2002::/16")
	compatible  = netip.MustParsePrefix("::/96")
)

// embedded is the IPv4 address that an IPv6 address of a transition mechanism stands for.
func embedded(address netip.Addr) netip.Addr {
	b := address.As16()
	switch {
	case address.Is4():
		return address
	case nat64.Contains(address), compatible.Contains(address) && b[12] != 0:
		return netip.AddrFrom4([4]byte(b[12:16]))
	case sixToFour.Contains(address):
		return netip.AddrFrom4([4]byte(b[2:6]))
	default:
		return address
	}
}
